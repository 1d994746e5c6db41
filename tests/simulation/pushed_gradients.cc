#include "tests/simulation/pushed_gradients.h"

#include "absl/strings/str_cat.h"
#include "common/wire/encoding.h"

namespace evenshard {

PushedGradients::PushedGradients(const PlannedConfig* config, int rank, bool settles_early)
    : config_(*config),
      settles_early_(settles_early),
      memory_(config->model().buffer_size()),
      encoder_(GradientEncoder::Create(*config, rank).value()) {
  for (const Chunk& chunk : config->plan().chunks()) values_.emplace_back(chunk.size);
}

void PushedGradients::Begin(bool assigns) {
  for (const Chunk& chunk : config_.plan().chunks()) {
    const PlannedConfig::Place place = config_.GradientPlace(assigns, chunk);
    Encode(place.type, values_[chunk.id], reinterpret_cast<char*>(memory_.data()) + place.begin);
  }
}

absl::StatusOr<PushedGradients::Push> PushedGradients::Take(const GradientHeader& header) {
  const Chunk& chunk = config_.plan().chunks()[header.chunk];
  const auto encoding = static_cast<Encoding>(header.encoding);
  const PlannedConfig::Place place = config_.GradientPlace(header.assigned.has_value(), chunk);
  Push push;
  if (!encoder_->Encodes(header)) {
    push.data.assign(memory() + place.begin, place.bytes);
  } else {
    push.data.resize(EncodedBytes(encoding, chunk.size));
    if (!encoder_->Encode(header, memory(), push.data.data())) {
      return absl::InternalError(absl::StrCat("a push of chunk ", chunk.id, " of iteration ",
                                              header.iteration, " is settled before its answer"));
    }
  }
  const auto [first, is_new] =
      latest_.try_emplace(chunk.id, std::pair(header.iteration, push.data));
  if (!is_new && first->second.first == header.iteration && first->second.second != push.data) {
    return absl::InternalError(absl::StrCat("a repeat of the push of chunk ", chunk.id,
                                            " of iteration ", header.iteration,
                                            " has other bytes"));
  }
  first->second = {header.iteration, push.data};
  push.arrives.resize(chunk.size);
  Decode(encoding, {absl::MakeConstSpan(push.data)}, absl::MakeSpan(push.arrives));
  if (carries() && encoding == FLOAT32) {
    std::vector<float> expected = values_[chunk.id];
    for (size_t i = 0; i < dropped_[chunk.id].size(); ++i) expected[i] += dropped_[chunk.id][i];
    if (push.arrives != expected) {
      return absl::InternalError(absl::StrCat("a push of chunk ", chunk.id, " of iteration ",
                                              header.iteration, " has not what was dropped"));
    }
  }
  if (settles_early_) encoder_->Settle(chunk, header.iteration, memory(), /*dropped=*/false);
  return push;
}

void PushedGradients::Answered(const ParameterHeader& header, bool contributes) {
  if (carries() && contributes) {
    std::vector<float>& dropped = dropped_[header.chunk];
    dropped.resize(values_[header.chunk].size());
    for (size_t i = 0; i < dropped.size(); ++i) {
      dropped[i] = header.dropped ? dropped[i] + values_[header.chunk][i] : 0;
    }
  }
  encoder_->Settle(config_.plan().chunks()[header.chunk], header.iteration, memory(),
                   header.dropped);
}

void PushedGradients::GoBack() {
  encoder_->Reset();
  latest_.clear();
  dropped_.clear();
}

}  // namespace evenshard
