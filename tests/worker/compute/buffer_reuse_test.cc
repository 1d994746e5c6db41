#include "worker/compute/buffer_reuse.h"

#include <catch2/catch.hpp>
#include <vector>

namespace evenshard {
namespace {

using Sizes = std::vector<size_t>;

TEST_CASE("uses that never meet share a buffer, which is as large as the largest") {
  const ReusedBuffers buffers = AssignBuffers({{10, 0, 1}, {30, 2, 3}, {20, 4, 4}});
  CHECK(buffers.bytes == Sizes{30});
  CHECK(buffers.buffer_of_use == Sizes{0, 0, 0});
}

TEST_CASE("uses that meet in a step, its last or first, have buffers of their own") {
  const ReusedBuffers buffers = AssignBuffers({{10, 0, 1}, {20, 1, 2}, {30, 2, 3}});
  CHECK(buffers.buffer_of_use == Sizes{0, 1, 0});
  CHECK(buffers.bytes == Sizes{30, 20});
}

TEST_CASE(
    "a use takes the free buffer that has to grow least, or the smallest that need not grow") {
  const ReusedBuffers buffers = AssignBuffers({{100, 0, 0}, {50, 0, 0}, {40, 1, 1}, {120, 1, 1}});
  CHECK(buffers.buffer_of_use == Sizes{0, 1, 1, 0});
  CHECK(buffers.bytes == Sizes{120, 50});
}

TEST_CASE("nothing needs no memory") { CHECK(AssignBuffers({}).bytes.empty()); }

}  // namespace
}  // namespace evenshard
