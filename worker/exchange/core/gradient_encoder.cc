#include "worker/exchange/core/gradient_encoder.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/optimizer/aggregate.h"
#include "common/wire/error_feedback.h"

namespace evenshard {
namespace {

// Calls `visit(begin, size)` for runs of elements that are encoded as if they were one.
template <typename Visit>
void ForEachRun(const Chunk& chunk, Visit visit) {
  for (int64_t begin = 0; begin < chunk.size; begin += kBlockElements) {
    visit(begin, static_cast<size_t>(std::min(kBlockElements, chunk.size - begin)));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientEncoder>> GradientEncoder::Create(
    const PlannedConfig& config, int rank) {
  std::unique_ptr<GradientEncoder> encoder(new GradientEncoder(config, rank));
  if (encoder->keeps_residual()) {
    ASSIGN_OR_RETURN(encoder->residual_, FloatBuffer::Allocate(config.model().buffer_size()));
  }
  return encoder;
}

GradientEncoder::GradientEncoder(const PlannedConfig& config, int rank)
    : config_(config),
      rank_(rank),
      feeds_back_(config.proto().exchange().error_feedback()),
      carries_(config.has_quorum() && config.proto().update().late() == Update::CARRY),
      states_(keeps_residual() ? config.plan().chunks().size() : 0) {}

bool GradientEncoder::Encodes(const GradientHeader& header) const {
  const bool assigned = header.assigned.has_value();
  const PlannedConfig::Place place =
      config_.GradientPlace(assigned, config_.plan().chunks()[header.chunk]);
  return place.type != header.encoding || (carries_ && !assigned);
}

Rounding GradientEncoder::RoundingOf(uint64_t iteration, const Chunk& chunk, int64_t begin) const {
  if (config_.proto().exchange().gradient_rounding() == ExchangeConfig::NEAREST) return {};
  return {.is_stochastic = true,
          .key = RoundingKey(rank_, iteration),
          .first = static_cast<uint32_t>(chunk.model_offset + begin)};
}

absl::Span<const float> GradientEncoder::ValuesOf(const Chunk& chunk, int64_t begin, float weight,
                                                  const char* gradient,
                                                  absl::Span<float> scratch) const {
  const PlannedConfig::Place place = config_.GradientPlace(/*assigned=*/false, chunk);
  const char* const memory = gradient + place.begin + EncodedBytes(place.type, begin);
  const auto n = static_cast<int64_t>(scratch.size());
  if (place.type == FLOAT32 && !keeps_residual()) {
    return {reinterpret_cast<const float*>(memory), scratch.size()};
  }
  Decode(place.type, {{memory, static_cast<size_t>(EncodedBytes(place.type, n))}}, scratch);
  if (!keeps_residual()) return scratch;
  const float* const residual = residual_.span().data() + chunk.model_offset + begin;
  if (weight == 1) {
    AddGradient(scratch.data(), residual, n);
  } else {
    for (int64_t i = 0; i < n; ++i) scratch[i] += weight * residual[i];
  }
  return scratch;
}

void GradientEncoder::EncodeChunk(const Chunk& chunk, uint64_t iteration, float weight,
                                  const char* gradient, char* out) const {
  const Encoding encoding = config_.GradientEncoding(/*assigned=*/false, chunk);
  ForEachRun(chunk, [&](int64_t begin, size_t size) {
    float scratch[kBlockElements];
    ::evenshard::Encode(encoding, ValuesOf(chunk, begin, weight, gradient, {scratch, size}),
                        out + EncodedBytes(encoding, begin), RoundingOf(iteration, chunk, begin));
  });
}

bool GradientEncoder::Encode(const GradientHeader& header, const char* gradient, char* out) {
  const Chunk& chunk = config_.plan().chunks()[header.chunk];
  if (!keeps_residual()) {
    EncodeChunk(chunk, header.iteration, /*weight=*/1, gradient, out);
    return true;
  }
  ChunkState& state = states_[chunk.id];
  absl::MutexLock lock(&state.mutex);
  if (state.settled == header.iteration) return false;
  state.encoded = header.iteration;
  state.weight = carries_ ? 1 : header.weight;
  EncodeChunk(chunk, header.iteration, state.weight, gradient, out);
  return true;
}

void GradientEncoder::Settle(const Chunk& chunk, uint64_t iteration, const char* gradient,
                             bool dropped) {
  if (!keeps_residual()) return;
  ChunkState& state = states_[chunk.id];
  absl::MutexLock lock(&state.mutex);
  if (state.encoded != iteration || state.settled == iteration) return;
  state.settled = iteration;
  const float weight = state.weight;
  const Encoding encoding = config_.GradientEncoding(/*assigned=*/false, chunk);
  ForEachRun(chunk, [&](int64_t begin, size_t size) {
    const auto n = static_cast<int64_t>(size);
    float* const residual = residual_.data() + chunk.model_offset + begin;
    if (!dropped && !feeds_back_) {
      std::fill_n(residual, n, 0.0f);
      return;
    }
    float scratch[kBlockElements], sent[kBlockElements] = {};
    char encoded[kBlockElements * sizeof(float)];
    const absl::Span<const float> sum = ValuesOf(chunk, begin, weight, gradient, {scratch, size});
    if (!dropped) {
      ::evenshard::Encode(encoding, sum, encoded, RoundingOf(iteration, chunk, begin));
      Decode(encoding, {{encoded, static_cast<size_t>(EncodedBytes(encoding, n))}}, {sent, size});
    }
    // In its unit, since KeepRest leaves what is no number as it was.
    for (int64_t i = 0; weight != 1 && i < n; ++i) residual[i] *= weight;
    KeepRest(sum.data(), sent, n, residual);
    for (int64_t i = 0; weight != 1 && i < n; ++i) residual[i] /= weight;
  });
}

void GradientEncoder::Reset() {
  residual_.GiveBack(0);
  for (ChunkState& state : states_) {
    absl::MutexLock lock(&state.mutex);
    state.encoded.reset();
    state.settled.reset();
  }
}

}  // namespace evenshard
