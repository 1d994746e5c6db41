#ifndef PS_COMMON_FLOAT_BUFFER_H_
#define PS_COMMON_FLOAT_BUFFER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/shared_buffer.pb.h"

namespace ps {

// A large array of floats: page-aligned, zero at the start. Pages are taken on first use only. Owns
// its memory; move-only.
class FloatBuffer {
 public:
  // In huge pages where the kernel has them. Errors: RESOURCE_EXHAUSTED with the size where the
  // kernel gives no memory.
  static absl::StatusOr<FloatBuffer> Allocate(int64_t floats);

  // In memory that other processes of this host can map while this buffer lives: a file without a
  // place in any file system (memfd_create), gone with the last process that has it. In huge pages
  // where /sys/kernel/mm/transparent_hugepage/shmem_enabled lets shared memory have them. Errors:
  // as above, and the system's.
  static absl::StatusOr<FloatBuffer> AllocateShared(int64_t floats);
  // Such a buffer of another process, or of this one. Errors: NOT_FOUND where it cannot be seen
  // from here, as on another host or in another container; INVALID_ARGUMENT where it has not
  // `floats` floats, for good.
  static absl::StatusOr<FloatBuffer> Map(const SharedBuffer& place, int64_t floats);

  FloatBuffer() = default;
  FloatBuffer(FloatBuffer&& other) noexcept { *this = std::move(other); }
  FloatBuffer& operator=(FloatBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(place_, other.place_);
    return *this;
  }
  ~FloatBuffer();

  float* data() { return data_; }
  absl::Span<float> span() { return {data_, static_cast<size_t>(size_)}; }
  absl::Span<const float> span() const { return {data_, static_cast<size_t>(size_)}; }

  // Of a buffer made by AllocateShared; else without a name.
  const SharedBuffer& place() const { return place_; }

 private:
  FloatBuffer(float* data, int64_t size) : data_(data), size_(size) {}

  float* data_ = nullptr;
  int64_t size_ = 0;
  SharedBuffer place_;
};

}  // namespace ps

#endif  // PS_COMMON_FLOAT_BUFFER_H_
