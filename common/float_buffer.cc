#include "common/float_buffer.h"

#include <sys/mman.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ps {

absl::StatusOr<FloatBuffer> FloatBuffer::Allocate(int64_t floats) {
  if (floats == 0) return FloatBuffer();
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the kernel has no ", bytes, " bytes of memory for ", floats, " floats"));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: small pages do as well
  return FloatBuffer(static_cast<float*>(memory), floats);
}

FloatBuffer::~FloatBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_) * sizeof(float));
}

}  // namespace ps
