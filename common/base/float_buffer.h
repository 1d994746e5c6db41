#ifndef EVENSHARD_COMMON_BASE_FLOAT_BUFFER_H_
#define EVENSHARD_COMMON_BASE_FLOAT_BUFFER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/shared_buffer.pb.h"

namespace evenshard {

// A large, page-aligned array of floats that are initially zero. The kernel provides a page when it
// is first used. A buffer owns its memory and is move-only.
class FloatBuffer {
 public:
  // Allocates private memory, in huge pages if the kernel has them.
  // Errors: RESOURCE_EXHAUSTED, with the size, if the kernel refuses the memory.
  static absl::StatusOr<FloatBuffer> Allocate(int64_t floats);

  // Allocates memory that other processes of this host can map as long as this buffer lives. It is
  // an anonymous file (memfd_create), which is gone once no process has it. It uses huge pages if
  // /sys/kernel/mm/transparent_hugepage/shmem_enabled permits them for shared memory.
  // Errors: RESOURCE_EXHAUSTED, also if the limit on the size of files (ulimit -f) is smaller; the
  // system's.
  static absl::StatusOr<FloatBuffer> AllocateShared(int64_t floats);
  // Maps a shared buffer of another process, or of this one.
  // Errors: NOT_FOUND if `place` leads to no such buffer here, because its process is on another
  // host or in another container, or has ended; INVALID_ARGUMENT if the buffer does not have
  // `floats` floats or could be cut shorter, which no later attempt changes; RESOURCE_EXHAUSTED.
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

  // Gives the kernel the whole pages back that begin at a float or later. What was in them is zero
  // then.
  void GiveBack(int64_t begin);

  // Where other processes find the buffer. The name is empty unless AllocateShared made it.
  const SharedBuffer& place() const { return place_; }

 private:
  FloatBuffer(float* data, int64_t size) : data_(data), size_(size) {}

  float* data_ = nullptr;
  int64_t size_ = 0;
  SharedBuffer place_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_FLOAT_BUFFER_H_
