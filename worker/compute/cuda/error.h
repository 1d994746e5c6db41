#ifndef PS_WORKER_COMPUTE_CUDA_ERROR_H_
#define PS_WORKER_COMPUTE_CUDA_ERROR_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <stdexcept>
#include <string>

namespace ps {

// What all of the CUDA backend throws; CudaBackend turns it into a status.
class CudaError : public std::runtime_error {
 public:
  enum class Kind {
    kSetup,   // no such device, or a driver or library that is too old
    kMemory,  // the device has not enough of it
    kLost,    // the device stopped working: nothing on it can be used any more
    kOther,
  };

  CudaError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// Each throws where `result` is an error; `what` says in the message what was tried.
void Check(cudaError_t result, const char* what);
void Check(cublasStatus_t result, const char* what);
void Check(cudnnStatus_t result, const char* what);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_ERROR_H_
