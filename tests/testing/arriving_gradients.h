#ifndef EVENSHARD_TESTS_TESTING_ARRIVING_GRADIENTS_H_
#define EVENSHARD_TESTS_TESTING_ARRIVING_GRADIENTS_H_

#include <string>
#include <vector>

#include "common/placement/planned_config.h"
#include "common/wire/encoding.h"

namespace evenshard {

// What the shards should get of a worker's gradients, in a worker's layout, computed chunk by chunk
// in the plainest way: with exchange.error_feedback each gradient has what the encoding lost of
// those before it.
class ArrivingGradients {
 public:
  // `config` must outlive this.
  ArrivingGradients(const PlannedConfig* config, uint32_t rank)
      : config_(*config), rank_(rank), rest_(config->model().buffer_size()) {}

  std::vector<float> Push(uint64_t iteration, std::vector<float> gradient) {
    const ExchangeConfig& exchange = config_.proto().exchange();
    for (const Chunk& chunk : config_.plan().chunks()) {
      const Encoding encoding = config_.GradientEncoding(/*assigned=*/false, chunk);
      const absl::Span<float> values =
          absl::MakeSpan(gradient).subspan(chunk.model_offset, chunk.size);
      float* const rest = rest_.data() + chunk.model_offset;
      for (int64_t i = 0; i < chunk.size; ++i) values[i] += rest[i];
      const std::vector<float> sum(values.begin(), values.end());
      std::string bytes(EncodedBytes(encoding, chunk.size), '\0');
      Encode(encoding, sum, bytes.data(),
             {.is_stochastic = exchange.gradient_rounding() == ExchangeConfig::STOCHASTIC,
              .key = RoundingKey(rank_, iteration),
              .first = static_cast<uint32_t>(chunk.model_offset)});
      Decode(encoding, {absl::MakeConstSpan(bytes)}, values);
      if (!exchange.error_feedback()) continue;
      for (int64_t i = 0; i < chunk.size; ++i) rest[i] = sum[i] - values[i];
    }
    return gradient;
  }

  // The run has gone back to a checkpoint.
  void GoBack() { rest_.assign(rest_.size(), 0); }

 private:
  const PlannedConfig& config_;
  const uint32_t rank_;
  std::vector<float> rest_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_ARRIVING_GRADIENTS_H_
