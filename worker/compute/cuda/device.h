#ifndef PS_WORKER_COMPUTE_CUDA_DEVICE_H_
#define PS_WORKER_COMPUTE_CUDA_DEVICE_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <string>

#include "worker/compute/cuda/kernels.h"

namespace ps {

// A point in a stream's work. Throws CudaError.
class CudaEvent {
 public:
  explicit CudaEvent(bool timing = false);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() { cudaEventDestroy(event_); }

  // Marks what has been queued on `stream` so far.
  void Record(cudaStream_t stream);
  // Makes `stream` wait here for the mark; the calling thread goes on.
  void Await(cudaStream_t stream) const;
  // Waits for it in the calling thread, without using a processor.
  void Await() const;
  // Whether the device has reached it.
  bool IsReached() const;
  // Both with timing, and reached.
  static double SecondsBetween(const CudaEvent& from, const CudaEvent& to);

 private:
  cudaEvent_t event_ = nullptr;
};

// How a backend multiplies.
enum class Precision { kFloat32, kTf32, kBfloat16 };

// One device as one backend uses it: the streams, the libraries' handles, and the memory that
// cuDNN and cuBLAS work in. CUDA's calls go to the device that a thread has chosen: see Use.
// Not thread-safe but for Use and what is constant. Throws CudaError.
class CudaDevice {
 public:
  struct Options {
    int number = 0;  // as CUDA counts
    Precision precision = Precision::kTf32;
    size_t workspace_bytes = 0;
    // How many of cuDNN's engines are timed for a convolution. 1: the first one is taken, untimed.
    int timed_engines = 8;
    // Equal runs give equal bits: no engine that adds up in changing order, and none chosen by
    // how long it takes.
    bool deterministic = false;
  };

  // Devices of this machine. Errors: kSetup where there is no driver, or none new enough.
  static int Count();

  // Errors: kSetup for a number that does not exist, a device too old for this program or for the
  // precision, or a cuDNN of an older major version than this program was built with; kMemory.
  explicit CudaDevice(const Options& options);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice();

  // Makes the calling thread's calls go to this device.
  void Use() const;
  // Waits until all streams are done.
  void Synchronize() const;

  // Layers queue on `compute`; copies from and to the host have a stream each.
  cudaStream_t compute() const { return compute_; }
  cudaStream_t upload() const { return upload_; }
  cudaStream_t download() const { return download_; }
  cublasHandle_t cublas() const { return cublas_; }
  cudnnHandle_t cudnn() const { return cudnn_; }

  bool deterministic() const { return options_.deterministic; }
  int timed_engines() const { return deterministic() ? 1 : options_.timed_engines; }
  Precision precision() const { return options_.precision; }
  // Of activations, and of the weights that layers multiply by.
  ElementType type() const {
    return precision() == Precision::kBfloat16 ? ElementType::kBfloat16 : ElementType::kFloat32;
  }

  // Used by one operation of the compute stream after the other.
  void* workspace() const { return workspace_; }
  size_t workspace_bytes() const { return options_.workspace_bytes; }

  const std::string& name() const { return name_; }              // "NVIDIA H200"
  const std::string& pci_bus_id() const { return pci_bus_id_; }  // "0000:1B:00.0"

 private:
  void Open();
  void Close();

  const Options options_;
  std::string name_;
  std::string pci_bus_id_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t upload_ = nullptr;
  cudaStream_t download_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  cudnnHandle_t cudnn_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_DEVICE_H_
