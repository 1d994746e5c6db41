#include "worker/data/order/permutation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

namespace evenshard {
namespace {

TEST_CASE("a permutation holds every number once") {
  const int64_t size = GENERATE(0, 1, 2, 3, 1000);
  std::vector<uint32_t> order = Permutation(size, CounterRandom(5, "test"));
  REQUIRE(static_cast<int64_t>(order.size()) == size);
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < size; ++i) CHECK(order[i] == i);
}

TEST_CASE("a permutation follows from its stream alone") {
  CHECK(Permutation(100, CounterRandom(5, "a")) == Permutation(100, CounterRandom(5, "a")));
  CHECK(Permutation(100, CounterRandom(5, "a")) != Permutation(100, CounterRandom(5, "b")));
  CHECK(Permutation(100, CounterRandom(5, "a")) != Permutation(100, CounterRandom(6, "a")));
}

TEST_CASE("all permutations are equally likely") {
  std::map<std::vector<uint32_t>, int> counts;
  for (uint64_t seed = 0; seed < 24000; ++seed) ++counts[Permutation(4, CounterRandom(seed, "x"))];
  REQUIRE(counts.size() == 24);
  double chi_squared = 0;
  for (const auto& [order, count] : counts)
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000;
  CHECK(chi_squared < 49.7);  // exceeded once in 1,000 draws with 23 degrees of freedom
}

}  // namespace
}  // namespace evenshard
