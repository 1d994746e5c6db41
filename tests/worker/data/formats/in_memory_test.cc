#include "worker/data/formats/in_memory.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace evenshard {
namespace {

// Makes 3 images of 2 channels and 2 pixels.
ByteImages Images() {
  return {.shape = {2, 1, 2},
          .pixels = {0, 2, 10, 10,  //
                     4, 6, 10, 10,  //
                     200, 201, 7, 8},
          .labels = {3, 1, 2}};
}

TEST_CASE("normalisation is by the mean and deviation of each channel of the chosen images") {
  const Normalization result = NormalizationOf(Images(), {0, 1});
  REQUIRE(result.mean.size() == 2);
  REQUIRE(result.scale.size() == 2);
  CHECK(result.mean[0] == 3.0f);
  CHECK(result.scale[0] == Approx(1 / std::sqrt(5.0)));  // of the values 0, 2, 4, 6
  CHECK(result.mean[1] == 10.0f);
  CHECK(result.scale[1] == 1.0f);  // all values are equal
}

TEST_CASE("in-memory images are normalised when read") {
  const InMemoryDataset dataset(Images(), {.mean = {3, 10}, .scale = {0.5f, 2}}, 4);
  CHECK(dataset.size() == 3);
  CHECK(dataset.shape() == Shape3{2, 1, 2});
  CHECK(dataset.classes() == 4);
  std::vector<float> image(4);
  int32_t label = -1;
  REQUIRE(dataset.Read(2, nullptr, absl::MakeSpan(image), &label).ok());
  CHECK(label == 2);
  CHECK(image == std::vector<float>{98.5f, 99, -6, -4});
}

TEST_CASE("a normalised training set has mean 0 and deviation 1") {
  ByteImages images;
  images.shape = {1, 4, 4};
  const CounterRandom random(11, 0);
  for (int i = 0; i < 16 * 50; ++i) images.pixels.push_back(random.Below(i, 256));
  images.labels.assign(50, 0);
  std::vector<uint32_t> all(50);
  for (uint32_t i = 0; i < 50; ++i) all[i] = i;
  const Normalization normalization = NormalizationOf(images, all);
  const InMemoryDataset dataset(std::move(images), normalization, 1);
  double sum = 0, squares = 0;
  std::vector<float> image(16);
  int32_t label = -1;
  for (int64_t i = 0; i < 50; ++i) {
    REQUIRE(dataset.Read(i, nullptr, absl::MakeSpan(image), &label).ok());
    for (const float value : image) {
      sum += value;
      squares += value * value;
    }
  }
  CHECK(sum / 800 == Approx(0).margin(1e-5));
  CHECK(squares / 800 == Approx(1));
}

}  // namespace
}  // namespace evenshard
