#include "server/session/worker_sets.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

using Ranks = std::vector<uint32_t>;

TEST_CASE("without views, and without a list, all workers count always") {
  for (const WorkerSets& worker_sets : {WorkerSets(3), WorkerSets(View(), 3)}) {
    for (const uint64_t iteration : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 60}) {
      CHECK(worker_sets.At(iteration) == Ranks{0, 1, 2});
      CHECK(worker_sets.Waited(iteration) == 3);
      CHECK(worker_sets.WaitsFor(2, iteration));
    }
  }
}

TEST_CASE("the entry that begins last before an iteration says who counts") {
  const WorkerSets worker_sets(ViewOf({{0, {2, 0, 1}}, {5, {0, 2}}, {9, {0, 1, 2}}}), 3);
  CHECK(worker_sets.At(4) == Ranks{0, 1, 2});
  CHECK(worker_sets.At(5) == Ranks{0, 2});
  CHECK(worker_sets.At(8) == Ranks{0, 2});
  CHECK(worker_sets.At(9) == Ranks{0, 1, 2});
  CHECK(worker_sets.Contains(1, 4));
  CHECK_FALSE(worker_sets.Contains(1, 5));
  CHECK(worker_sets.Contains(1, 9));
}

TEST_CASE("entries of a run with more workers may come before the last") {
  const WorkerSets worker_sets(ViewOf({{0, {0, 1, 7}}, {5, {0, 1}}}), 2);
  CHECK(worker_sets.At(4) == Ranks{0, 1, 7});
  CHECK(worker_sets.Contains(7, 4));
  CHECK_FALSE(worker_sets.Contains(7, 5));
  CHECK(worker_sets.WaitedRanks(4) == Ranks{0, 1});
}

TEST_CASE("in its last iteration a worker counts and is not waited for") {
  const WorkerSets worker_sets(ViewOf({{0, {0, 1, 2}}, {5, {0, 2}}, {9, {0, 1, 2}}}), 3);
  CHECK(worker_sets.WaitsFor(1, 3));
  CHECK(worker_sets.Contains(1, 4));
  CHECK_FALSE(worker_sets.WaitsFor(1, 4));
  CHECK(worker_sets.Waited(4) == 2);
  CHECK(worker_sets.WaitedRanks(4) == Ranks{0, 2});
  CHECK(worker_sets.Waited(3) == 3);
  CHECK(worker_sets.WaitedRanks(3) == Ranks{0, 1, 2});
  // Who joins is waited for from its first iteration on, and not in the one before.
  CHECK_FALSE(worker_sets.WaitsFor(1, 8));
  CHECK(worker_sets.Waited(8) == 2);
  CHECK(worker_sets.WaitsFor(1, 9));
  CHECK(worker_sets.Waited(9) == 3);
}

}  // namespace
}  // namespace evenshard
