#include "common/float_buffer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>

namespace ps {

TEST_CASE("a float buffer is zero, page-aligned and writable") {
  absl::StatusOr<FloatBuffer> buffer = FloatBuffer::Allocate(100'000);
  REQUIRE(buffer.ok());
  REQUIRE(buffer->span().size() == 100'000);
  CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 4096 == 0);
  CHECK(std::all_of(buffer->span().begin(), buffer->span().end(), [](float f) { return f == 0; }));
  buffer->span().back() = 1;

  FloatBuffer moved = *std::move(buffer);
  CHECK(moved.span().back() == 1);
}

TEST_CASE("more memory than there can be is refused with its size") {
  const absl::StatusOr<FloatBuffer> buffer = FloatBuffer::Allocate(int64_t{1} << 58);
  REQUIRE(absl::IsResourceExhausted(buffer.status()));
  CHECK_THAT(std::string(buffer.status().message()), Catch::Contains("1152921504606846976 bytes"));
}

TEST_CASE("an empty float buffer needs no memory") {
  const absl::StatusOr<FloatBuffer> buffer = FloatBuffer::Allocate(0);
  REQUIRE(buffer.ok());
  CHECK(buffer->span().empty());
}

}  // namespace ps
