#include "worker/data/formats/augment.h"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tests/worker/data/formats/fake_dataset.h"

namespace evenshard {
namespace {

constexpr Shape3 kShape = {2, 2, 3};

std::vector<float> ReadOne(const Dataset& dataset, const CounterRandom* random) {
  std::vector<float> image(kShape.size());
  int32_t label = -1;
  REQUIRE(dataset.Read(0, random, absl::MakeSpan(image), &label).ok());
  CHECK(label == 0);
  return image;
}

AugmentedDataset Augmented(bool flip, int64_t padding) {
  return AugmentedDataset(std::make_unique<FakeDataset>(1, kShape), flip, padding);
}

// Returns image 0 of the fake data set, shifted so that its pixel (top, left) comes first.
std::vector<float> Shifted(int64_t top, int64_t left, bool flip) {
  std::vector<float> image;
  for (int64_t channel = 0; channel < 2; ++channel) {
    for (int64_t row = top; row < top + 2; ++row) {
      for (int64_t i = 0; i < 3; ++i) {
        const int64_t column = left + (flip ? 2 - i : i);
        const bool inside = row >= 0 && row < 2 && column >= 0 && column < 3;
        image.push_back(inside ? 1.0f + channel * 6 + row * 3 + column : 0.0f);
      }
    }
  }
  return image;
}

TEST_CASE("without random numbers an image is not augmented") {
  CHECK(ReadOne(Augmented(true, 1), nullptr) == Shifted(0, 0, false));
}

TEST_CASE("a flip mirrors the columns, about every second time") {
  const AugmentedDataset dataset = Augmented(true, 0);
  int flipped = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const CounterRandom random(3, i);
    const std::vector<float> image = ReadOne(dataset, &random);
    const bool mirrored = image == Shifted(0, 0, true);
    CHECK((mirrored || image == Shifted(0, 0, false)));
    flipped += mirrored;
  }
  CHECK(flipped > 430);
  CHECK(flipped < 570);
}

TEST_CASE("a random crop yields every shift within the padding, filled with zeros") {
  const AugmentedDataset dataset = Augmented(false, 1);
  std::set<std::vector<float>> expected, seen;
  for (int64_t top = -1; top <= 1; ++top) {
    for (int64_t left = -1; left <= 1; ++left) expected.insert(Shifted(top, left, false));
  }
  for (uint64_t i = 0; i < 300; ++i) {
    const CounterRandom random(4, i);
    seen.insert(ReadOne(dataset, &random));
  }
  CHECK(seen == expected);
}

TEST_CASE("flip and crop work together") {
  const AugmentedDataset dataset = Augmented(true, 1);
  for (uint64_t i = 0; i < 50; ++i) {
    const CounterRandom random(5, i);
    const Augmentation choice = DrawAugmentation(random, true, 2, 2);
    CHECK(ReadOne(dataset, &random) == Shifted(choice.top - 1, choice.left - 1, choice.flip));
  }
}

TEST_CASE("an augmentation follows from its random numbers alone") {
  const AugmentedDataset dataset = Augmented(true, 1);
  std::set<std::vector<float>> different;
  for (uint64_t i = 0; i < 20; ++i) {
    const CounterRandom random(6, i);
    const std::vector<float> first = ReadOne(dataset, &random);
    CHECK(ReadOne(dataset, &random) == first);
    different.insert(first);
  }
  CHECK(different.size() > 1);
}

TEST_CASE("an image that cannot be read stays an error when augmented") {
  auto base = std::make_unique<FakeDataset>(1, kShape);
  base->MakeUnreadable(0);
  const AugmentedDataset dataset(std::move(base), true, 1);
  std::vector<float> image(kShape.size());
  int32_t label = -1;
  const CounterRandom random(7, uint64_t{0});
  CHECK(dataset.Read(0, &random, absl::MakeSpan(image), &label).code() ==
        absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace evenshard
