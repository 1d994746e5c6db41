#include "worker/data/formats/subset.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/worker/data/formats/fake_dataset.h"

namespace evenshard {
namespace {

TEST_CASE("a holdout is disjoint from the training images, and both together are all") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const int64_t size = std::uniform_int_distribution<int64_t>(1, 2000)(random);
    const double fraction = std::uniform_real_distribution<double>(0, 1)(random);
    INFO("size " << size << ", fraction " << fraction);
    const Split split = HoldOut(size, fraction, random());
    CHECK(std::is_sorted(split.train.begin(), split.train.end()));
    CHECK(std::is_sorted(split.test.begin(), split.test.end()));
    CHECK(static_cast<int64_t>(split.test.size()) ==
          std::max<int64_t>(1, std::llround(fraction * size)));
    std::vector<uint32_t> together = split.train;
    together.insert(together.end(), split.test.begin(), split.test.end());
    std::sort(together.begin(), together.end());
    std::vector<uint32_t> all(size);
    std::iota(all.begin(), all.end(), 0);
    CHECK(together == all);
  }
}

TEST_CASE("a holdout follows from the seed") {
  CHECK(HoldOut(1000, 0.2, 1).test == HoldOut(1000, 0.2, 1).test);
  CHECK(HoldOut(1000, 0.2, 1).test != HoldOut(1000, 0.2, 2).test);
}

TEST_CASE("a holdout of 0 holds nothing out") {
  const Split split = HoldOut(10, 0, 1);
  CHECK(split.test.empty());
  CHECK(split.train.size() == 10);
}

TEST_CASE("a subset reads the images that it names") {
  const SubsetDataset subset(std::make_shared<FakeDataset>(10, Shape3{1, 1, 2}), {2, 7});
  CHECK(subset.size() == 2);
  CHECK(subset.shape() == Shape3{1, 1, 2});
  CHECK(subset.classes() == 10);
  std::vector<float> image(2);
  int32_t label = -1;
  REQUIRE(subset.Read(1, nullptr, absl::MakeSpan(image), &label).ok());
  CHECK(label == 7);
  CHECK(image == std::vector<float>{7001, 7002});
}

TEST_CASE("a subset passes the random numbers of an augmentation on") {
  const SubsetDataset subset(std::make_shared<FakeDataset>(3, Shape3{1, 1, 1}, true), {2});
  std::vector<float> image(1);
  int32_t label = -1;
  const CounterRandom random(1, "augment");
  REQUIRE(subset.Read(0, &random, absl::MakeSpan(image), &label).ok());
  CHECK(image[0] == 2001 + random.Uniform(0) / 2);
}

}  // namespace
}  // namespace evenshard
