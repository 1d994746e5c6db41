#include "bench/wire/wire_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/placement/model/initializer.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// Returns the gradient's element at `index` of the buffer of rank 0. That of rank r is r + 1 times
// as large.
float BaseGradient(uint32_t index) {
  const uint32_t mixed = (index * 2654435761u) >> 24;  // 0 to 255
  return static_cast<float>(static_cast<int>(mixed) - 128) * (1.0f / 4096);
}

// No element of the gradient of rank 0 is larger.
constexpr double kLargest = 128.0 / 4096;

// Returns by how much a parameter of about `value` may be off after `iterations` updates with a
// mean gradient of about `gradient`, if gradients and parameters are rounded when they are sent.
double Tolerance(const PlannedConfig& config, int64_t iterations, double value, double gradient) {
  const ExchangeConfig& exchange = config.proto().exchange();
  double tolerance = 0;
  double of_mean = 0;
  if (const HalfWidth* half = HalfWidthOf(exchange.gradient_encoding())) {
    of_mean = half->relative_error * std::abs(gradient) + half->absolute_error;
  } else if (const BlockScaled* blocks = BlockScaledOf(exchange.gradient_encoding())) {
    const double mean_largest = kLargest * (config.workers() + 1) / 2;
    of_mean = blocks->relative_error * std::abs(gradient) + blocks->absolute_error * mean_largest;
  }
  if (of_mean > 0) {
    // The second term is for the float32 update itself, whose rounding depends on the gradient.
    const double of_update =
        config.proto().optimizer().learning_rate() * of_mean + 0x1p-23 * std::abs(value);
    tolerance += static_cast<double>(iterations) * of_update;
  }
  if (const HalfWidth* half = HalfWidthOf(exchange.parameter_encoding())) {
    tolerance += half->relative_error * (std::abs(value) + tolerance) + half->absolute_error;
  }
  return tolerance;
}

}  // namespace

void FillWireGradient(int rank, absl::Span<float> gradient) {
  const float factor = static_cast<float>(rank + 1);
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = factor * BaseGradient(static_cast<uint32_t>(i));
  }
}

absl::Status VerifyParameters(const PlannedConfig& config, int64_t iterations,
                              absl::Span<const float> parameters) {
  const int workers = config.workers();
  const float factor = static_cast<float>(workers * (workers + 1) / 2);  // 1 + 2 + ... + W
  const float scale = 1.0f / static_cast<float>(workers);
  const float learning_rate = config.proto().optimizer().learning_rate();
  constexpr int64_t kBlock = 16384;
  std::vector<float> expected(kBlock);
  for (const Tensor& tensor : config.model().tensors()) {
    // Running statistics are added as they are.
    const float rate = tensor.role == TensorRole::kParameter ? learning_rate : 1;
    for (int64_t begin = 0; begin < tensor.size; begin += kBlock) {
      const int64_t size = std::min(kBlock, tensor.size - begin);
      const int64_t offset = tensor.offset + begin;
      InitializeParameters(config.proto().training().seed(), tensor, begin,
                           absl::MakeSpan(expected).subspan(0, size));
      for (int64_t k = 0; k < iterations; ++k) {
        for (int64_t i = 0; i < size; ++i) {
          const float sum = factor * BaseGradient(static_cast<uint32_t>(offset + i));
          expected[i] -= rate * (scale * sum);
        }
      }
      for (int64_t i = 0; i < size; ++i) {
        if (parameters[offset + i] == expected[i]) continue;
        const double mean = scale * factor * BaseGradient(static_cast<uint32_t>(offset + i));
        const double tolerance = Tolerance(config, iterations, expected[i], mean);
        if (std::abs(double{parameters[offset + i]} - expected[i]) <= tolerance) continue;
        return absl::DataLossError(absl::StrFormat(
            "%s element %d is %.9g after %d iterations, and must be %.9g, give or take %.3g",
            tensor.name, begin + i, parameters[offset + i], iterations, expected[i], tolerance));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace evenshard
