#include "worker/compute/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/compute/buffer_reuse.h"
#include "worker/compute/cuda/error.h"

namespace evenshard {
namespace {

// Satisfies all accesses of cuDNN, cuBLAS and the kernels.
constexpr size_t kAlignmentBytes = 256;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

std::string Mebibytes(size_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

}  // namespace

CudaMemory::~CudaMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

CudaArrayPtr CudaMemory::Declare(size_t bytes) {
  return arrays_.emplace_back(std::make_shared<CudaArray>(CudaArray{bytes}));
}

CudaArrayPtr CudaMemory::DeclareShared(size_t bytes) {
  return std::make_shared<CudaArray>(CudaArray{bytes});
}

void CudaMemory::Allocate(const std::vector<std::vector<CudaArrayPtr>>& steps,
                          const std::string& what) {
  std::vector<BufferUse> uses;
  const auto bytes_of = [](const CudaArrayPtr& array) { return array->bytes; };
  const std::vector<CudaArrayPtr> shared = HandlesOf(steps, bytes_of, &uses);
  const ReusedBuffers buffers = AssignBuffers(uses);

  for (const CudaArrayPtr& array : arrays_) bytes_ += Aligned(array->bytes);
  for (const size_t bytes : buffers.bytes) bytes_ += Aligned(bytes);
  size_t free = 0;
  size_t total = 0;
  Check(cudaMemGetInfo(&free, &total), "asking for the free memory");
  const cudaError_t result = bytes_ > free ? cudaErrorMemoryAllocation : cudaMalloc(&data_, bytes_);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw CudaError(CudaError::Kind::kMemory,
                    absl::StrCat(what, " needs ", Mebibytes(bytes_), " of device memory; ",
                                 Mebibytes(free), " of ", Mebibytes(total), " are free"));
  }
  Check(result, "allocating device memory");

  char* next = static_cast<char*>(data_);
  const auto take = [&](size_t bytes) {
    char* const taken = next;
    next += Aligned(bytes);
    return taken;
  };
  for (const CudaArrayPtr& array : arrays_) array->data = take(array->bytes);
  std::vector<void*> places;
  for (const size_t bytes : buffers.bytes) places.push_back(take(bytes));
  for (size_t i = 0; i < shared.size(); ++i) shared[i]->data = places[buffers.buffer_of_use[i]];
}

PinnedMemory PinnedMemory::Allocate(size_t bytes) {
  PinnedMemory memory;
  Check(cudaMallocHost(&memory.data_, bytes), "allocating page-locked memory");
  memory.owned_ = true;
  return memory;
}

PinnedMemory PinnedMemory::Lock(void* memory, size_t bytes) {
  PinnedMemory lock;
  Check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "page-locking a buffer");
  lock.data_ = memory;
  return lock;
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(owned_, other.owned_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  if (owned_) {
    cudaFreeHost(data_);
  } else {
    cudaHostUnregister(data_);
  }
}

}  // namespace evenshard
