#include "common/placement/simulator/representatives.h"

#include <catch2/catch.hpp>
#include <vector>

namespace evenshard {
namespace {

TEST_CASE("workers with the same link and slowdown share their representatives") {
  ClusterRates rates;
  rates.worker_link = {10, 10, 5, 10, 10, 10};
  rates.worker_slowdown = {1, 1, 1, 2, 1, 1};
  const Representatives two = RepresentativesOf(rates, 2);
  CHECK(two.ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(two.members == std::vector<double>{2, 2, 1, 1});
  CHECK(two.of_rank == std::vector<int>{0, 1, 2, 3, 0, 1});
  const Representatives one = RepresentativesOf(rates, 1);
  CHECK(one.ranks == std::vector<int>{0, 2, 3});
  CHECK(one.members == std::vector<double>{4, 1, 1});
  const Representatives three = RepresentativesOf(rates, 3);
  CHECK(three.ranks == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(three.members == std::vector<double>{2, 1, 1, 1, 1});
}

TEST_CASE("singular workers stand for themselves, and for no other") {
  ClusterRates rates;
  rates.worker_link = rates.worker_slowdown = {1, 1, 1, 1, 1};
  const Representatives some = RepresentativesOf(rates, 2, 2);
  CHECK(some.ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(some.members == std::vector<double>{1, 1, 2, 1});
  CHECK(some.of_rank == std::vector<int>{0, 1, 2, 3, 2});
}

TEST_CASE("each worker represents itself if enough are allowed") {
  ClusterRates rates;
  rates.worker_link = rates.worker_slowdown = {1, 1, 1};
  const Representatives all = RepresentativesOf(rates, 3);
  CHECK(all.ranks == std::vector<int>{0, 1, 2});
  CHECK(all.members == std::vector<double>{1, 1, 1});
  CHECK(all.of_rank == all.ranks);
}

}  // namespace
}  // namespace evenshard
