#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_ERROR_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_ERROR_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <stdexcept>
#include <string>

namespace evenshard {

// The exception that all parts of the CUDA backend throw. CudaBackend converts it to a status.
class CudaError : public std::runtime_error {
 public:
  enum class Kind {
    kSetup,   // no such device, or the device, its driver or a library is too old
    kMemory,  // not enough memory on the device
    kLost,    // the device stopped working and cannot be used any more
    kOther,
  };

  CudaError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// Whether cuDNN had not enough memory, which says nothing about what it was asked for.
bool IsOutOfMemory(cudnnStatus_t result);

// Each throws if `result` is an error. `what` names the failed action in the message.
void Check(cudaError_t result, const char* what);
void Check(cublasStatus_t result, const char* what);
void Check(cudnnStatus_t result, const char* what);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_ERROR_H_
