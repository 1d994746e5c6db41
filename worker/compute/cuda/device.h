#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_DEVICE_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_DEVICE_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <string>

#include "proto/config.pb.h"
#include "worker/compute/cuda/kernels.h"

namespace evenshard {

// A point in a stream's work. Methods throw CudaError.
class CudaEvent {
 public:
  explicit CudaEvent(bool timing = false);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() { cudaEventDestroy(event_); }

  // Marks the end of the work that was queued on `stream` so far.
  void Record(cudaStream_t stream);
  // Makes `stream` wait for the mark. The calling thread does not wait.
  void Await(cudaStream_t stream) const;
  // Blocks the calling thread until the device reaches the mark, without spinning.
  void Await() const;
  // Returns whether the device has reached the mark.
  bool IsReached() const;
  // REQUIRES: both events were made with timing, and the device has reached both.
  static double SecondsBetween(const CudaEvent& from, const CudaEvent& to);

 private:
  cudaEvent_t event_ = nullptr;
};

// The precision in which a backend multiplies.
using Precision = Compute::Cuda::Precision;

// A device as one backend uses it: its streams, the libraries' handles, and the workspace of cuDNN
// and cuBLAS. CUDA directs a thread's calls to the device that the thread has chosen with Use. Not
// thread-safe, except for Use and the accessors of constants. Throws CudaError.
class CudaDevice {
 public:
  struct Options {
    int number = 0;  // the device's index, as CUDA counts
    Precision precision = Compute::Cuda::TF32;
    size_t workspace_bytes = 0;
    // How many of cuDNN's engines are timed for a convolution. With 1, the first one is taken
    // untimed.
    int timed_engines = 8;
    // Makes equal runs give bit-identical results: excludes engines that add up in varying order,
    // and does not choose engines by time.
    bool deterministic = false;
  };

  // Returns the number of devices on this machine. Errors: kSetup if there is no driver, or it is
  // too old.
  static int Count();

  // Errors: kSetup for a device number that does not exist, a device that is too old for this
  // program or for the precision, or a cuDNN of an older major version than this program was built
  // with; kMemory.
  explicit CudaDevice(const Options& options);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice();

  // Directs the calling thread's CUDA calls to this device.
  void Use() const;
  // Blocks until all streams are done.
  void Synchronize() const;

  // Layers queue on `compute`. Copies from and to the host have one stream each.
  cudaStream_t compute() const { return compute_; }
  cudaStream_t upload() const { return upload_; }
  cudaStream_t download() const { return download_; }
  cublasHandle_t cublas() const { return cublas_; }
  cudnnHandle_t cudnn() const { return cudnn_; }

  bool deterministic() const { return options_.deterministic; }
  int timed_engines() const { return deterministic() ? 1 : options_.timed_engines; }
  Precision precision() const { return options_.precision; }
  // The type of activations, and of the weights that layers multiply with.
  ElementType type() const {
    return precision() == Compute::Cuda::BFLOAT16 ? ElementType::kBfloat16 : ElementType::kFloat32;
  }

  // Scratch memory of cuDNN and cuBLAS. The operations of the compute stream use it in turn.
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

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_DEVICE_H_
