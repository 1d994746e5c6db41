#include "worker/compute/cpu/softmax_cross_entropy.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/worker/compute/cpu/golden_file.h"

namespace evenshard {
namespace {

TEST_CASE("the loss and its gradient with respect to the scores equal PyTorch's") {
  const std::string name = GENERATE("mlp", "vector_channels");
  const GoldenFile golden = ReadGoldenFile(name);
  const std::vector<float>& scores = golden.tensors.at("scores");
  const std::vector<float>& expected = golden.tensors.at("scores/gradient");
  const int64_t classes = scores.size() / golden.labels.size();
  std::vector<float> gradient(scores.size());
  const BatchResult result =
      SoftmaxCrossEntropy(scores, golden.labels, classes, absl::MakeSpan(gradient));
  CHECK(result.loss == Approx(golden.loss).epsilon(1e-6));
  CHECK(result.correct == golden.correct);
  for (size_t i = 0; i < scores.size(); ++i) {
    CHECK(gradient[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-7));
  }
}

TEST_CASE("the gradient of the loss equals its finite differences") {
  const std::vector<int32_t> labels = {2, 0};
  std::vector<float> scores = {0.5f, -1.25f, 2.0f, 0.0f, -0.75f, 0.25f};
  std::vector<float> gradient(scores.size());
  SoftmaxCrossEntropy(scores, labels, 3, absl::MakeSpan(gradient));
  const float step = 0x1p-10f;  // exact in every sum below
  for (size_t i = 0; i < scores.size(); ++i) {
    const float score = scores[i];
    scores[i] = score + step;
    const double above = SoftmaxCrossEntropy(scores, labels, 3, {}).loss;
    scores[i] = score - step;
    const double below = SoftmaxCrossEntropy(scores, labels, 3, {}).loss;
    scores[i] = score;
    CHECK(gradient[i] == Approx((above - below) / (2 * step)).epsilon(1e-5));
  }
}

TEST_CASE("huge scores do not overflow") {
  const std::vector<float> scores = {3e38f, 0.0f, -3e38f};
  std::vector<float> gradient(3);
  CHECK(SoftmaxCrossEntropy(scores, {0}, 3, absl::MakeSpan(gradient)).loss == 0);
  CHECK(gradient == std::vector<float>{0, 0, 0});
  const BatchResult wrong = SoftmaxCrossEntropy(scores, {1}, 3, absl::MakeSpan(gradient));
  CHECK(wrong.loss == Approx(3e38));
  CHECK(gradient == std::vector<float>{1, -1, 0});
}

TEST_CASE("an image is correct only if its label alone has the largest score") {
  const std::vector<float> scores = {1,  2,  0,  //
                                     3,  2,  3,  //
                                     0,  0,  0,  //
                                     -3, -2, -1};
  const auto correct = [&](const std::vector<int32_t>& labels) {
    return SoftmaxCrossEntropy(scores, labels, 3, {}).correct;
  };
  CHECK(correct({1, 0, 0, 2}) == 2);
  CHECK(correct({0, 1, 1, 0}) == 0);
}

TEST_CASE("a NaN score makes the loss NaN and no image correct") {
  const int nan_at = GENERATE(0, 1, 2);
  std::vector<float> scores = {0, 0, 0};
  scores[nan_at] = NAN;
  const BatchResult result = SoftmaxCrossEntropy(scores, {0}, 3, {});
  CHECK(std::isnan(result.loss));
  CHECK(result.correct == 0);
}

}  // namespace
}  // namespace evenshard
