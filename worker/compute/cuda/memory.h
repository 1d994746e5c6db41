#ifndef PS_WORKER_COMPUTE_CUDA_MEMORY_H_
#define PS_WORKER_COMPUTE_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ps {

// Device memory that a layer needs, which has its place once CudaMemory::Allocate has run.
struct CudaArray {
  size_t bytes = 0;
  void* data = nullptr;

  float* floats() const { return static_cast<float*>(data); }
};
using CudaArrayPtr = std::shared_ptr<CudaArray>;

// All device memory of a backend but cuDNN's workspace: declared piece by piece while the layers
// are made, then taken in one allocation, so that a model or batch that does not fit is known
// with its whole need before any of it is used. Not thread-safe. Throws CudaError.
class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  // To be had for good; `bytes` may be 0.
  CudaArrayPtr Declare(size_t bytes);
  // To be had from the first to the last step that names it (see Allocate).
  static CudaArrayPtr DeclareShared(size_t bytes);

  // Gives everything its place, aligned to 256 bytes. `steps`: the shared arrays that each step of
  // a pass touches, in the order of the pass; those never needed at once may share memory.
  // Nothing may be declared afterwards. Errors: kMemory with what `what` needs and what is free.
  void Allocate(const std::vector<std::vector<CudaArrayPtr>>& steps, const std::string& what);

  size_t bytes() const { return bytes_; }

 private:
  std::vector<CudaArrayPtr> arrays_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Page-locked memory of the host: a device copies from and to it while it computes.
// Owns it, or, with Lock, the lock of memory that someone else owns. Throws CudaError.
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

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_MEMORY_H_
