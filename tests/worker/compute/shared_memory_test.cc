#include "worker/compute/shared_memory.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ps {
namespace {

using Sizes = std::vector<size_t>;

TEST_CASE("Uses that never meet share a piece, which is as large as the largest") {
  const MemoryPieces pieces = ShareMemory({{10, 0, 1}, {30, 2, 3}, {20, 4, 4}});
  CHECK(pieces.bytes == Sizes{30});
  CHECK(pieces.piece_of_use == Sizes{0, 0, 0});
}

TEST_CASE("Uses that meet in a step, its last or first, have pieces of their own") {
  const MemoryPieces pieces = ShareMemory({{10, 0, 1}, {20, 1, 2}, {30, 2, 3}});
  CHECK(pieces.piece_of_use == Sizes{0, 1, 0});
  CHECK(pieces.bytes == Sizes{30, 20});
}

TEST_CASE("A use takes the free piece that has to grow least, the smallest that need not") {
  const MemoryPieces pieces = ShareMemory({{100, 0, 0}, {50, 0, 0}, {40, 1, 1}, {120, 1, 1}});
  CHECK(pieces.piece_of_use == Sizes{0, 1, 1, 0});
  CHECK(pieces.bytes == Sizes{120, 50});
}

TEST_CASE("Nothing needs no memory") { CHECK(ShareMemory({}).bytes.empty()); }

}  // namespace
}  // namespace ps
