#include "common/model/initializer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace ps {
namespace {

Tensor MakeTensor(const std::string& name, int64_t size, int64_t fan_in, Initializer initializer) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = {size};
  tensor.size = size;
  tensor.fan_in = fan_in;
  tensor.initializer = initializer;
  return tensor;
}

std::vector<float> Initialized(uint64_t seed, const Tensor& tensor) {
  std::vector<float> values(tensor.size, std::nanf(""));
  InitializeParameters(seed, tensor, 0, absl::MakeSpan(values));
  return values;
}

TEST_CASE("He uniform values fill their range evenly") {
  const int64_t fan_in = GENERATE(1, 6, 25088);
  const Tensor tensor = MakeTensor("fc/weight", 1 << 18, fan_in, Initializer::kHeUniform);
  const std::vector<float> values = Initialized(1, tensor);
  const double bound = std::sqrt(6.0 / fan_in);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  CHECK(*least >= static_cast<float>(-bound));
  CHECK(*most <= static_cast<float>(bound));
  // The probability that none of n uniform numbers is in the outermost 20/n of the range is e^-20.
  CHECK(*least < bound * (-1 + 40.0 / tensor.size));
  CHECK(*most > bound * (1 - 40.0 / tensor.size));
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  // The mean is 0 and the variance is 2 / fan_in, as in He et al., within five standard errors. The
  // variance of x^2 is 4/45 * bound^4.
  CHECK(std::abs(sum / tensor.size) < 5 * std::sqrt(2.0 / fan_in / tensor.size));
  CHECK(std::abs(squares / tensor.size - 2.0 / fan_in) <
        5 * std::sqrt(4.0 / 45 / tensor.size) * bound * bound);
}

TEST_CASE("zeros and ones fill the whole tensor") {
  const std::vector<float> zeros =
      Initialized(1, MakeTensor("fc/bias", 100, 0, Initializer::kZeros));
  const std::vector<float> ones =
      Initialized(1, MakeTensor("bn/weight", 100, 0, Initializer::kOnes));
  CHECK(zeros == std::vector<float>(100, 0.0f));
  CHECK(ones == std::vector<float>(100, 1.0f));
}

TEST_CASE("the seed and the tensor's name choose the values") {
  const Tensor a = MakeTensor("a/weight", 100, 10, Initializer::kHeUniform);
  const Tensor b = MakeTensor("b/weight", 100, 10, Initializer::kHeUniform);
  CHECK(Initialized(1, a) == Initialized(1, a));
  CHECK(Initialized(1, a) != Initialized(2, a));
  CHECK(Initialized(1, a) != Initialized(1, b));
}

TEST_CASE("initialising in pieces, in any order, gives the values of the whole") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const auto initializer = static_cast<Initializer>(random() % 3);
    const Tensor tensor = MakeTensor("t/weight", 1 + random() % 1000, 9, initializer);
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
}  // namespace ps
