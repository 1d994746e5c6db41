#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_MEMORY_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace evenshard {

// Device memory that a layer needs. CudaMemory::Allocate sets `data`.
struct CudaArray {
  size_t bytes = 0;
  void* data = nullptr;

  float* floats() const { return static_cast<float*>(data); }
};
using CudaArrayPtr = std::shared_ptr<CudaArray>;

// All device memory of a backend, except the workspace of cuDNN and cuBLAS. It is declared piece by
// piece while the layers are made, and then allocated as one block. If a model or batch does not
// fit, the error thus names its whole need before any of it is used. Not thread-safe. Throws
// CudaError.
class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  // Declares memory that no other array shares. `bytes` may be 0, and may change until Allocate.
  CudaArrayPtr Declare(size_t bytes);
  // Declares memory that is needed only from the first to the last step that lists it (see
  // Allocate).
  static CudaArrayPtr DeclareShared(size_t bytes);

  // Allocates all declared arrays, each aligned to 256 bytes. `steps` lists the shared arrays that
  // each step of a pass uses, some of which may be null, in the order of the pass. Shared arrays
  // that are never needed at the same time may share memory. Nothing may be declared afterwards.
  // Errors: kMemory with `what`, the memory that it needs and the memory that is free.
  void Allocate(const std::vector<std::vector<CudaArrayPtr>>& steps, const std::string& what);

  size_t bytes() const { return bytes_; }

 private:
  std::vector<CudaArrayPtr> arrays_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Page-locked host memory, which a device can copy from and to while it computes. Owns the memory,
// or, if made by Lock, only the lock of memory that someone else owns. Throws CudaError.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static PinnedMemory Allocate(size_t bytes);
  // `memory` must outlive the lock.
  static PinnedMemory Lock(void* memory, size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept { *this = static_cast<PinnedMemory&&>(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  bool owned_ = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_MEMORY_H_
