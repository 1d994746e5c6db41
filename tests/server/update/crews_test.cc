#include "server/update/crews.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

using Ranks = std::vector<uint32_t>;

TEST_CASE("without views, and without a list, all workers count always") {
  for (const Crews& crews : {Crews(3), Crews(View(), 3)}) {
    for (const uint64_t iteration : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 60}) {
      CHECK(crews.At(iteration) == Ranks{0, 1, 2});
      CHECK(crews.Waited(iteration) == 3);
      CHECK(crews.WaitsFor(2, iteration));
    }
  }
}

TEST_CASE("the entry that begins last before an iteration says who counts") {
  const Crews crews(ViewOf({{0, {2, 0, 1}}, {5, {0, 2}}, {9, {0, 1, 2}}}), 3);
  CHECK(crews.At(4) == Ranks{0, 1, 2});
  CHECK(crews.At(5) == Ranks{0, 2});
  CHECK(crews.At(8) == Ranks{0, 2});
  CHECK(crews.At(9) == Ranks{0, 1, 2});
  CHECK(crews.Contains(1, 4));
  CHECK_FALSE(crews.Contains(1, 5));
  CHECK(crews.Contains(1, 9));
}

TEST_CASE("in its last iteration a worker counts and is not waited for") {
  const Crews crews(ViewOf({{0, {0, 1, 2}}, {5, {0, 2}}, {9, {0, 1, 2}}}), 3);
  CHECK(crews.WaitsFor(1, 3));
  CHECK(crews.Contains(1, 4));
  CHECK_FALSE(crews.WaitsFor(1, 4));
  CHECK(crews.Waited(4) == 2);
  CHECK(crews.Waited(3) == 3);
  // Who joins is waited for from its first iteration on, and not in the one before.
  CHECK_FALSE(crews.WaitsFor(1, 8));
  CHECK(crews.Waited(8) == 2);
  CHECK(crews.WaitsFor(1, 9));
  CHECK(crews.Waited(9) == 3);
}

}  // namespace
}  // namespace evenshard
