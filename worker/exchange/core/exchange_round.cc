#include "worker/exchange/core/exchange_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

constexpr absl::Duration kLongestWatchPeriod = absl::Seconds(1);
constexpr absl::Duration kWhileWaitingPeriod = absl::Milliseconds(100);
constexpr size_t kMostNamed = 3;  // shards in a line

}  // namespace

ExchangeRound::ExchangeRound(const PlannedConfig& config,
                             std::function<std::string(int)> shard_name, Trace* trace,
                             std::function<void()> while_waiting)
    : plan_(config.plan()),
      limit_(1.1 * absl::Seconds(config.proto().limits().exchange_seconds()) + absl::Seconds(1)),
      watch_period_(std::min(limit_ / 10, kLongestWatchPeriod)),
      shard_name_(std::move(shard_name)),
      trace_(trace),
      while_waiting_(std::move(while_waiting)),
      layer_of_chunk_(plan_.chunks().size()),
      states_(plan_.chunks().size(), State::kAnswered),
      skips_(plan_.chunks().size()),
      again_(plan_.chunks().size()),
      versions_(plan_.chunks().size()) {
  for (const Tensor& tensor : config.model().tensors()) {
    is_statistic_.push_back(tensor.role == TensorRole::kRunningStatistic);
  }
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
  tensor_unanswered_.resize(config.model().tensors().size());
  shard_unsent_.resize(config.shards());
}

absl::Status ExchangeRound::Begin(uint64_t iteration, bool skip,
                                  absl::Span<const float> learning_rates) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  iteration_ = iteration;
  learning_rates_.assign(learning_rates.begin(), learning_rates.end());
  states_.assign(states_.size(), State::kBegun);
  skips_.assign(skips_.size(), skip);
  again_.assign(again_.size(), false);
  layer_unpushed_ = layer_unsent_ = layer_unanswered_ = layer_chunks_;
  for (size_t tensor = 0; tensor < tensor_unanswered_.size(); ++tensor) {
    tensor_unanswered_[tensor] = plan_.chunks_of_tensor(static_cast<int>(tensor)).size();
  }
  unanswered_ = states_.size();
  ++moves_;
  return absl::OkStatus();
}

void ExchangeRound::Pushed(absl::Span<const uint32_t> chunks, bool skip) {
  absl::MutexLock lock(&mutex_);
  for (const uint32_t chunk : chunks) {
    states_[chunk] = State::kPushed;
    skips_[chunk] = skips_[chunk] || skip;
    ++shard_unsent_[plan_.chunks()[chunk].shard];
    const int layer = layer_of_chunk_[chunk];
    const size_t before = layer_unpushed_[layer]--;
    if (before == layer_chunks_[layer] && trace_ != nullptr) {
      trace_->Begin("push", layer, iteration_);
    }
  }
  unsent_ += chunks.size();
}

std::vector<uint32_t> ExchangeRound::PushAgain(int shard) {
  absl::MutexLock lock(&mutex_);
  std::vector<uint32_t> chunks;
  for (const uint32_t chunk : plan_.chunks_of_shard(shard)) {
    if (!IsPending(chunk)) continue;
    again_[chunk] = true;
    chunks.push_back(chunk);
  }
  return chunks;
}

std::optional<float> ExchangeRound::LearningRate(uint32_t chunk) const {
  if (learning_rates_.empty() || skips_[chunk]) return std::nullopt;
  const int tensor = plan_.chunks()[chunk].tensor;
  return is_statistic_[tensor] ? std::nullopt : std::optional(learning_rates_[tensor]);
}

std::optional<ExchangeRound::Push> ExchangeRound::ToSend(uint32_t chunk) const {
  absl::MutexLock lock(&mutex_);
  if (!IsPending(chunk)) return std::nullopt;
  return Push{.iteration = iteration_,
              .base_version = versions_[chunk],
              .view = view_,
              .skip = skips_[chunk],
              .learning_rate = LearningRate(chunk),
              .again = again_[chunk]};
}

void ExchangeRound::Sent(uint32_t chunk, uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  if (iteration == iteration_ && states_[chunk] == State::kPushed) CountSent(chunk);
}

void ExchangeRound::CountSent(uint32_t chunk) {
  states_[chunk] = State::kSent;
  const int layer = layer_of_chunk_[chunk];
  if (--layer_unsent_[layer] == 0 && trace_ != nullptr) trace_->End("push", layer, iteration_);
  --shard_unsent_[plan_.chunks()[chunk].shard];
  --unsent_;
  ++moves_;
}

absl::StatusOr<bool> ExchangeRound::Claim(uint32_t chunk, uint64_t iteration, uint64_t view) {
  absl::MutexLock lock(&mutex_);
  if (iteration > iteration_ || (iteration == iteration_ && states_[chunk] == State::kBegun)) {
    return absl::InternalError(absl::StrCat("it answered chunk ", chunk, " of iteration ",
                                            iteration, ", which was not asked for"));
  }
  if (iteration < iteration_ || view < view_ || !IsPending(chunk)) return false;
  if (states_[chunk] == State::kPushed) CountSent(chunk);
  states_[chunk] = State::kClaimed;
  newest_view_ = std::max(newest_view_, view);
  return true;
}

void ExchangeRound::Answered(uint32_t chunk, uint64_t version) {
  absl::MutexLock lock(&mutex_);
  versions_[chunk] = version;
  CountAnswered(chunk);
}

void ExchangeRound::CountAnswered(uint32_t chunk) {
  states_[chunk] = State::kAnswered;
  --unanswered_;
  --tensor_unanswered_[plan_.chunks()[chunk].tensor];
  ++moves_;
  const int layer = layer_of_chunk_[chunk];
  const size_t before = layer_unanswered_[layer]--;
  if (trace_ == nullptr) return;
  if (before == layer_chunks_[layer]) trace_->Begin("pull", layer, iteration_);
  if (before == 1) trace_->End("pull", layer, iteration_);
}

void ExchangeRound::SetVersion(uint32_t chunk, uint64_t version) {
  absl::MutexLock lock(&mutex_);
  versions_[chunk] = version;
}

size_t ExchangeRound::ChunksAfter(uint64_t version) const {
  absl::MutexLock lock(&mutex_);
  return std::count_if(versions_.begin(), versions_.end(),
                       [version](uint64_t held) { return held > version; });
}

void ExchangeRound::Follow(uint64_t view, bool waits_for_absent) {
  absl::MutexLock lock(&mutex_);
  view_ = view;
  waits_for_absent_ = waits_for_absent;
  ++moves_;
}

void ExchangeRound::GiveUp() {
  absl::MutexLock lock(&mutex_);
  for (const Chunk& chunk : plan_.chunks()) {
    if (!IsPending(chunk.id)) continue;
    if (states_[chunk.id] == State::kPushed) CountSent(chunk.id);
    CountAnswered(chunk.id);
  }
}

void ExchangeRound::Reset() {
  absl::MutexLock lock(&mutex_);
  failure_ = absl::OkStatus();
  iteration_ = 0;
  newest_view_ = 0;
  states_.assign(states_.size(), State::kAnswered);
  layer_unanswered_.assign(layer_unanswered_.size(), 0);
  tensor_unanswered_.assign(tensor_unanswered_.size(), 0);
  shard_unsent_.assign(shard_unsent_.size(), 0);
  unanswered_ = unsent_ = 0;
}

void ExchangeRound::Fail(const absl::Status& failure) {
  absl::MutexLock lock(&mutex_);
  failure_.Update(failure);
}

absl::Status ExchangeRound::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

bool ExchangeRound::Settled() const {
  absl::MutexLock lock(&mutex_);
  return unanswered_ == 0 && view_ >= newest_view_;
}

bool ExchangeRound::TensorAnswered(int tensor) const {
  absl::MutexLock lock(&mutex_);
  return tensor_unanswered_[tensor] == 0;
}

bool ExchangeRound::AllAnswered() const {
  absl::MutexLock lock(&mutex_);
  return unanswered_ == 0;
}

absl::Status ExchangeRound::AwaitLayer(int layer) { return Await({.layer = layer}); }

absl::Status ExchangeRound::AwaitTensor(int tensor) { return Await({.tensor = tensor}); }

absl::Status ExchangeRound::AwaitAll() { return Await({}); }

absl::Status ExchangeRound::AwaitSent() { return Await({.until = Until::kSent}); }

absl::Status ExchangeRound::AwaitView() { return Await({.until = Until::kViewed}); }

size_t ExchangeRound::Remaining(const Wait& wait) const {
  if (wait.until == Until::kSent) return unsent_;
  if (wait.until == Until::kViewed) return view_ < newest_view_;
  if (wait.tensor.has_value()) return tensor_unanswered_[*wait.tensor];
  return wait.layer.has_value() ? layer_unanswered_[*wait.layer] : unanswered_;
}

// Abseil's timeouts follow the time of day, which may be changed during the wait. CheckProgress
// therefore ends the wait instead, and the period of while_waiting_ is not exact.
absl::Status ExchangeRound::Await(const Wait& wait) {
  absl::MutexLock lock(&mutex_);
  wait_ = wait;
  ++moves_;
  const auto over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return Remaining(wait) == 0 || !failure_.ok();
  };
  const absl::Duration period =
      while_waiting_ == nullptr ? absl::InfiniteDuration() : kWhileWaitingPeriod;
  while (!mutex_.AwaitWithTimeout(absl::Condition(&over), period)) {
    mutex_.Unlock();
    while_waiting_();
    mutex_.Lock();
  }
  wait_.reset();
  return failure_;
}

std::optional<Stall> ExchangeRound::CheckProgress(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  // If the calls were far apart, as on a machine that was suspended, only two periods count. The
  // shards did not run in that time either, or their answers are yet to be read.
  const absl::Duration step =
      std::clamp(now - watch_.checked, absl::ZeroDuration(), 2 * watch_period_);
  watch_.checked = now;
  if (!failure_.ok()) return std::nullopt;

  if (!wait_.has_value() || Remaining(*wait_) == 0 || moves_ != watch_.moves) {
    const Stall over = {
        .iteration = watch_.iteration, .lasted = watch_.lasted, .is_news = watch_.news.Over()};
    if (iteration_ != watch_.iteration) {
      watch_.news = DoublingNotice(std::max(kNewsAfter, 2 * watch_.longest));
      watch_.longest = absl::ZeroDuration();
    }
    watch_.iteration = iteration_;
    watch_.moves = moves_;
    watch_.lasted = absl::ZeroDuration();
    return over.is_news ? std::optional(over) : std::nullopt;
  }

  watch_.lasted += step;
  watch_.longest = std::max(watch_.longest, watch_.lasted);
  if (watch_.lasted >= limit_ && !waits_for_absent_) {
    failure_ = absl::DeadlineExceededError(
        absl::StrCat("iteration ", iteration_, ": ", Missing(*wait_), " for ",
                     absl::FormatDuration(limit_), " (limits.exchange_seconds)"));
    return std::nullopt;
  }
  if (watch_.lasted < kNewsAfter) return std::nullopt;
  return Stall{.iteration = iteration_,
               .lasted = watch_.lasted,
               .missing = Missing(*wait_),
               .is_news = watch_.news.Grew(watch_.lasted)};
}

std::string ExchangeRound::Missing(const Wait& wait) const {
  if (wait.until == Until::kViewed) {
    return absl::StrCat("view ", newest_view_, ", which a shard follows, has not come");
  }
  std::vector<size_t> missing(shard_unsent_.size());
  std::vector<size_t> awaited(missing.size());
  for (const Chunk& chunk : plan_.chunks()) {
    if (wait.layer.has_value() && layer_of_chunk_[chunk.id] != *wait.layer) continue;
    if (wait.tensor.has_value() && chunk.tensor != *wait.tensor) continue;
    ++awaited[chunk.shard];
    if (states_[chunk.id] != State::kAnswered) ++missing[chunk.shard];
  }
  const bool is_for_sent = wait.until == Until::kSent;
  if (is_for_sent) missing = shard_unsent_;

  std::vector<std::string> shards;
  for (size_t shard = 0; shard < missing.size(); ++shard) {
    if (missing[shard] == 0) continue;
    shards.push_back(absl::StrCat(shard_name_(static_cast<int>(shard)), " has not ",
                                  is_for_sent ? "taken " : "answered ", missing[shard], " of ",
                                  awaited[shard], " chunks"));
  }
  const size_t named = std::min(shards.size(), kMostNamed);
  const size_t others = shards.size() - named;
  shards.resize(named);
  return absl::StrCat(absl::StrJoin(shards, ", "),
                      others == 0 ? "" : absl::StrCat(", nor have ", others, " other shards"));
}

}  // namespace evenshard
