#ifndef PS_COMMON_FLOAT_BUFFER_H_
#define PS_COMMON_FLOAT_BUFFER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ps {

// A large array of floats: page-aligned, zero at the start, in huge pages where the
// kernel has them. Pages are taken on first use only. Owns its memory; move-only.
class FloatBuffer {
 public:
  // Errors: RESOURCE_EXHAUSTED with the size where the kernel gives no memory.
  static absl::StatusOr<FloatBuffer> Allocate(int64_t floats);

  FloatBuffer() = default;
  FloatBuffer(FloatBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FloatBuffer& operator=(FloatBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~FloatBuffer();

  float* data() { return data_; }
  absl::Span<float> span() { return {data_, static_cast<size_t>(size_)}; }
  absl::Span<const float> span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  FloatBuffer(float* data, int64_t size) : data_(data), size_(size) {}

  float* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace ps

#endif  // PS_COMMON_FLOAT_BUFFER_H_
