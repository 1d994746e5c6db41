#include "worker/data/formats/synthetic.h"

#include <catch2/catch.hpp>
#include <vector>

namespace evenshard {
namespace {

constexpr Shape3 kShape = {3, 16, 16};

std::vector<float> ReadOne(const Dataset& dataset, int64_t index, int32_t* label) {
  std::vector<float> image(dataset.shape().size());
  REQUIRE(dataset.Read(index, nullptr, absl::MakeSpan(image), label).ok());
  return image;
}

double Correlation(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / static_cast<double>(a.size());
}

TEST_CASE("a synthetic image follows from the seed and its index") {
  const SyntheticDataset one(kShape, 5, 100, 0.5f, 1), same(kShape, 5, 100, 0.5f, 1),
      other(kShape, 5, 100, 0.5f, 2);
  int32_t label = -1;
  for (const int64_t index : {0, 1, 99}) {
    CHECK(ReadOne(one, index, &label) == ReadOne(same, index, &label));
    CHECK(ReadOne(one, index, &label) != ReadOne(other, index, &label));
  }
}

TEST_CASE("synthetic images have mean 0 and deviation 1 at any noise") {
  const float noise = GENERATE(0.0f, 0.5f, 3.0f);
  const SyntheticDataset dataset({3, 100, 100}, 10, 10, noise, 1);
  int32_t label = -1;
  const std::vector<float> image = ReadOne(dataset, 7, &label);
  double sum = 0;
  for (const float value : image) sum += value;
  CHECK(sum / 30000 == Approx(0).margin(0.03));
  CHECK(Correlation(image, image) == Approx(1).margin(0.05));
}

TEST_CASE("every synthetic image is nearest to the pattern of its class") {
  const int64_t classes = GENERATE(1, 2, 10, 1000);
  const SyntheticDataset patterns(kShape, classes, classes, 0, 1);
  const SyntheticDataset dataset(kShape, classes, 1000, 0.5f, 1);
  std::vector<std::vector<float>> pattern(classes);
  int32_t label = -1;
  for (int64_t c = 0; c < classes; ++c) {
    pattern[c] = ReadOne(patterns, c, &label);
    REQUIRE(label == c);
  }
  int nearest = 0;
  for (int64_t i = 0; i < 1000; i += 37) {
    const std::vector<float> image = ReadOne(dataset, i, &label);
    CHECK(label == i % classes);
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) {
      if (Correlation(image, pattern[c]) > Correlation(image, pattern[best])) best = c;
    }
    nearest += best == label;
  }
  CHECK(nearest == 28);
}

TEST_CASE("two synthetic images of a class differ by their noise") {
  const SyntheticDataset dataset(kShape, 2, 10, 0.5f, 1);
  int32_t label = -1;
  CHECK(ReadOne(dataset, 0, &label) != ReadOne(dataset, 2, &label));
}

}  // namespace
}  // namespace evenshard
