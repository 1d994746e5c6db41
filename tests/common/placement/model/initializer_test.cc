#include "common/placement/model/initializer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace evenshard {
namespace {

Tensor MakeTensor(const std::string& name, int64_t size, Initializer initializer) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = {size};
  tensor.size = size;
  tensor.initializer = initializer;
  return tensor;
}

std::vector<float> Initialized(uint64_t seed, const Tensor& tensor) {
  std::vector<float> values(tensor.size, std::nanf(""));
  InitializeParameters(seed, tensor, 0, absl::MakeSpan(values));
  return values;
}

struct Moments {
  double mean = 0;
  double square = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments moments;
  for (const double value : values) {
    moments.mean += value / values.size();
    moments.square += value * value / values.size();
  }
  return moments;
}

TEST_CASE("uniform values fill the range of their scale evenly") {
  const double scale = GENERATE(2.0, 1.0, 0.01);
  const Tensor tensor = MakeTensor("fc/weight", 1 << 18, {Initializer::kUniform, scale});
  const std::vector<float> values = Initialized(1, tensor);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  CHECK(*least >= static_cast<float>(-scale));
  CHECK(*most <= static_cast<float>(scale));
  // The probability that none of n uniform numbers is in the outermost 20/n of the range is e^-20.
  CHECK(*least < scale * (-1 + 40.0 / tensor.size));
  CHECK(*most > scale * (1 - 40.0 / tensor.size));
  // The bounds are five standard errors. The variance of x is scale^2 / 3, that of x^2 is
  // 4/45 * scale^4.
  const auto [mean, square] = MomentsOf(values);
  CHECK(std::abs(mean) < 5 * scale * std::sqrt(1.0 / 3 / tensor.size));
  CHECK(std::abs(square - scale * scale / 3) <
        5 * scale * scale * std::sqrt(4.0 / 45 / tensor.size));
}

TEST_CASE("normal values have their scale as standard deviation") {
  const double scale = GENERATE(2.0, 0.01);
  const Tensor tensor = MakeTensor("fc/weight", 1 << 18, {Initializer::kNormal, scale});
  const std::vector<float> values = Initialized(1, tensor);
  const auto [mean, square] = MomentsOf(values);
  // The bounds are five standard errors. The variances of x and x^2 are scale^2 and 2 * scale^4.
  CHECK(std::abs(mean) < 5 * scale * std::sqrt(1.0 / tensor.size));
  CHECK(std::abs(square - scale * scale) < 5 * scale * scale * std::sqrt(2.0 / tensor.size));
  // 4.6 % of the values are beyond two standard deviations, and no uniform ones would be.
  const auto beyond = std::count_if(values.begin(), values.end(),
                                    [&](float value) { return std::abs(value) > 2 * scale; });
  CHECK(static_cast<double>(beyond) / tensor.size == Approx(0.0455).margin(0.003));
}

TEST_CASE("zeros and ones fill the whole tensor") {
  const std::vector<float> zeros = Initialized(1, MakeTensor("fc/bias", 100, {}));
  const std::vector<float> ones =
      Initialized(1, MakeTensor("bn/weight", 100, {Initializer::kOnes}));
  CHECK(zeros == std::vector<float>(100, 0.0f));
  CHECK(ones == std::vector<float>(100, 1.0f));
}

TEST_CASE("the seed and the tensor's name choose the values") {
  const Initializer initializer = {GENERATE(Initializer::kUniform, Initializer::kNormal), 1};
  const Tensor a = MakeTensor("a/weight", 100, initializer);
  const Tensor b = MakeTensor("b/weight", 100, initializer);
  CHECK(Initialized(1, a) == Initialized(1, a));
  CHECK(Initialized(1, a) != Initialized(2, a));
  CHECK(Initialized(1, a) != Initialized(1, b));
}

TEST_CASE("initialising in pieces, in any order, gives the values of the whole") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const auto kind = static_cast<Initializer::Kind>(random() % (Initializer::kNormal + 1));
    const Tensor tensor = MakeTensor("t/weight", 1 + random() % 1000, {kind, 0.3});
    std::vector<int64_t> cuts = {0, tensor.size};
    for (int i = random() % 8; i > 0; --i) cuts.push_back(random() % tensor.size);
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<float> pieces(tensor.size, std::nanf(""));
    for (const size_t i : order) {
      InitializeParameters(5, tensor, cuts[i],
                           absl::MakeSpan(pieces).subspan(cuts[i], cuts[i + 1] - cuts[i]));
    }
    CHECK(pieces == Initialized(5, tensor));
  }
}

}  // namespace
}  // namespace evenshard
