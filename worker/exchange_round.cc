#include "worker/exchange_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ps {

ExchangeRound::ExchangeRound(const Config& config, std::function<std::string(int)> shard_name,
                             Trace* trace)
    : plan_(config.plan()),
      limit_(1.1 * absl::Seconds(config.proto().limits().exchange_seconds()) + absl::Seconds(1)),
      shard_name_(std::move(shard_name)),
      trace_(trace),
      layer_of_chunk_(plan_.chunks().size()),
      states_(plan_.chunks().size(), State::kAnswered),
      overtaken_(plan_.chunks().size()) {
  for (const Layer& layer : config.model().layers()) {
    size_t chunks = 0;
    for (int i = 0; i < layer.tensor_count; ++i) {
      for (const uint32_t chunk : plan_.chunks_of_tensor(layer.first_tensor + i)) {
        layer_of_chunk_[chunk] = static_cast<int>(layer_chunks_.size());
        ++chunks;
      }
    }
    layer_chunks_.push_back(chunks);
  }
  absl::MutexLock lock(&mutex_);
  layer_unanswered_.resize(layer_chunks_.size());
}

absl::Status ExchangeRound::Begin(uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  iteration_ = iteration;
  states_.assign(states_.size(), State::kBegun);
  layer_unpushed_ = layer_unsent_ = layer_unanswered_ = layer_chunks_;
  unanswered_ = states_.size();
  return absl::OkStatus();
}

void ExchangeRound::Pushed(absl::Span<const uint32_t> chunks) {
  absl::MutexLock lock(&mutex_);
  for (const uint32_t chunk : chunks) {
    states_[chunk] = State::kPushed;
    const int layer = layer_of_chunk_[chunk];
    const size_t before = layer_unpushed_[layer]--;
    if (before == layer_chunks_[layer] && trace_ != nullptr) {
      trace_->Begin("push", layer, iteration_);
    }
  }
  unsent_ += chunks.size();
}

void ExchangeRound::Sent(uint32_t chunk) {
  absl::MutexLock lock(&mutex_);
  if (overtaken_[chunk] > 0) {
    --overtaken_[chunk];
  } else {
    CountSent(chunk);
  }
}

void ExchangeRound::CountSent(uint32_t chunk) {
  states_[chunk] = State::kSent;
  const int layer = layer_of_chunk_[chunk];
  if (--layer_unsent_[layer] == 0 && trace_ != nullptr) trace_->End("push", layer, iteration_);
  --unsent_;
}

bool ExchangeRound::Awaits(uint32_t chunk, uint64_t iteration) const {
  absl::MutexLock lock(&mutex_);
  return iteration == iteration_ &&
         (states_[chunk] == State::kPushed || states_[chunk] == State::kSent);
}

void ExchangeRound::Answered(uint32_t chunk) {
  absl::MutexLock lock(&mutex_);
  if (states_[chunk] == State::kPushed) {
    ++overtaken_[chunk];
    CountSent(chunk);
  }
  states_[chunk] = State::kAnswered;
  --unanswered_;
  const int layer = layer_of_chunk_[chunk];
  const size_t before = layer_unanswered_[layer]--;
  if (trace_ == nullptr) return;
  if (before == layer_chunks_[layer]) trace_->Begin("pull", layer, iteration_);
  if (before == 1) trace_->End("pull", layer, iteration_);
}

void ExchangeRound::Fail(const absl::Status& failure) {
  absl::MutexLock lock(&mutex_);
  failure_.Update(failure);
}

bool ExchangeRound::AllAnswered() const {
  absl::MutexLock lock(&mutex_);
  return unanswered_ == 0;
}

absl::Status ExchangeRound::AwaitLayer(int layer) { return Await(layer); }

absl::Status ExchangeRound::AwaitAll() { return Await(std::nullopt); }

size_t ExchangeRound::Unanswered(std::optional<int> layer) const {
  return layer.has_value() ? layer_unanswered_[*layer] : unanswered_;
}

absl::Status ExchangeRound::Await(std::optional<int> layer) {
  absl::MutexLock lock(&mutex_);
  return AwaitNone([&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return Unanswered(layer); },
                   [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
                     uint32_t chunk = 0;
                     while (states_[chunk] == State::kAnswered ||
                            (layer.has_value() && layer_of_chunk_[chunk] != *layer)) {
                       ++chunk;
                     }
                     return absl::StrCat(shard_name_(plan_.chunks()[chunk].shard),
                                         " has not answered chunk ", chunk, " of iteration ",
                                         iteration_);
                   });
}

absl::Status ExchangeRound::AwaitSent() {
  absl::MutexLock lock(&mutex_);
  return AwaitNone([&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return unsent_; },
                   [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
                     return absl::StrCat("the shards have taken no gradient of iteration ",
                                         iteration_);
                   });
}

absl::Status ExchangeRound::AwaitNone(const std::function<size_t()>& left,
                                      const std::function<std::string()>& describe) {
  const auto over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return left() == 0 || !failure_.ok();
  };
  while (!over()) {
    const size_t before = unanswered_ + unsent_;
    if (mutex_.AwaitWithTimeout(absl::Condition(&over), limit_)) break;
    if (unanswered_ + unsent_ != before) continue;
    failure_ = absl::DeadlineExceededError(absl::StrCat(
        describe(), " for ", absl::FormatDuration(limit_), " (limits.exchange_seconds)"));
  }
  return failure_;
}

}  // namespace ps
