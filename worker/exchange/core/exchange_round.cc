// How a chunk gets through an iteration:
//   1. Begin. Push marks the chunks of a tensor as pushed, and the schedule releases them: at once,
//      or when everything has been pushed. What is released waits in PushLanes for the streams.
//   2. A stream takes a message of chunks, and reports when it was sent. Under SEQUENTIAL the
//      report of the last one releases the last chunk of each stream.
//   3. The answer is claimed, stored by the caller, and counted.
//   4. When everything is answered, and the view is that of the newest answer, the caller ends the
//      iteration.
#include "worker/exchange/core/exchange_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/placement/plan.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

constexpr absl::Duration kLongestWatchPeriod = absl::Seconds(1);
constexpr absl::Duration kWhileWaitingPeriod = absl::Milliseconds(100);
constexpr size_t kMostNamed = 3;  // shards in a line

}  // namespace

ExchangeRound::ExchangeRound(const Options& options)
    : options_(options),
      config_(*options.config),
      plan_(config_.plan()),
      schedule_(config_),
      limit_(1.1 * absl::Seconds(config_.proto().limits().exchange_seconds()) + absl::Seconds(1)),
      watch_period_(std::min(limit_ / 10, kLongestWatchPeriod)),
      lanes_(&config_, &schedule_),
      watch_(watch_period_),
      chunks_(&config_, &schedule_, options.trace),
      is_connected_(config_.shards()),
      has_answered_(config_.shards()) {}

ExchangeRound::Phase ExchangeRound::PhaseLocked() const {
  if (!is_open_) return Phase::kIdle;
  return chunks_.unpushed_tensors() > 0 ? Phase::kPushing : Phase::kPushed;
}

ExchangeRound::Phase ExchangeRound::phase() const {
  absl::MutexLock lock(&mutex_);
  return PhaseLocked();
}

uint64_t ExchangeRound::next_iteration() const {
  absl::MutexLock lock(&mutex_);
  return next_iteration_;
}

void ExchangeRound::StartAt(uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  next_iteration_ = iteration;
}

absl::Status ExchangeRound::Begin(uint64_t iteration, bool skip,
                                  absl::Span<const float> learning_rates) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  if (is_open_) {
    return absl::FailedPreconditionError(
        "an iteration has begun, and not all of its tensors have been waited for");
  }
  is_open_ = true;
  learning_rates_.assign(learning_rates.begin(), learning_rates.end());
  chunks_.Begin(iteration, skip);
  ++moves_;
  return absl::OkStatus();
}

absl::Status ExchangeRound::CheckPush(absl::Span<const int> tensors) const {
  if (!is_open_) return absl::FailedPreconditionError("no iteration has begun");
  for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) {
    if (chunks_.is_pushed(*tensor) || std::find(tensors.begin(), tensor, *tensor) != tensor) {
      return absl::FailedPreconditionError(absl::StrCat(
          config_.model().tensors()[*tensor].name, " has been pushed in this iteration already"));
    }
  }
  return absl::OkStatus();
}

absl::Status ExchangeRound::Push(absl::Span<const int> tensors, bool contributes) {
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckPush(tensors));
    for (const int tensor : tensors) chunks_.Push(tensor, /*skip=*/!contributes);
    if (is_abandoned_) chunks_.GiveUp();
    QueueReleased();
  }
  WakeAll();
  return absl::OkStatus();
}

void ExchangeRound::QueueReleased() {
  for (const uint32_t chunk : chunks_.Release()) {
    if (is_connected_[plan_.chunks()[chunk].shard]) lanes_.Queue(chunk);
  }
  if (chunks_.unpushed_tensors() > 0) return;
  for (int shard = 0; shard < config_.shards(); ++shard) lanes_.AllQueued(shard);
}

void ExchangeRound::WakeAll() const {
  for (int shard = 0; shard < config_.shards(); ++shard) options_.wake(shard);
}

void ExchangeRound::Open(int shard) {
  absl::MutexLock lock(&mutex_);
  is_connected_[shard] = true;
  lanes_.Clear(shard);
  for (const uint32_t chunk : chunks_.QueueAgain(shard)) lanes_.Queue(chunk);
  lanes_.Flush(shard);  // somebody may wait for them
  if (chunks_.unpushed_tensors() == 0) lanes_.AllQueued(shard);
}

void ExchangeRound::Close(int shard) {
  absl::MutexLock lock(&mutex_);
  is_connected_[shard] = has_answered_[shard] = false;
  lanes_.Clear(shard);
}

bool ExchangeRound::HasAnswered(int shard) const {
  absl::MutexLock lock(&mutex_);
  return has_answered_[shard];
}

std::optional<float> ExchangeRound::LearningRate(uint32_t chunk) const {
  if (learning_rates_.empty() || chunks_.is_skipped(chunk)) return std::nullopt;
  const int tensor = plan_.chunks()[chunk].tensor;
  const bool is_statistic = config_.model().tensors()[tensor].role == TensorRole::kRunningStatistic;
  return is_statistic ? std::nullopt : std::optional(learning_rates_[tensor]);
}

std::vector<GradientHeader> ExchangeRound::Take(int shard, int stream, bool has_data) {
  std::vector<GradientHeader> taken;
  while (taken.empty()) {
    const std::vector<uint32_t> popped = lanes_.Pop(shard, stream, has_data);
    if (popped.empty()) break;
    absl::MutexLock lock(&mutex_);
    for (const uint32_t chunk : popped) {
      if (!chunks_.IsPending(chunk)) continue;
      taken.push_back({.worker = static_cast<uint32_t>(options_.rank),
                       .incarnation = options_.incarnation,
                       .iteration = chunks_.iteration(),
                       .chunk = chunk,
                       .base_version = chunks_.version(chunk),
                       .skip = chunks_.is_skipped(chunk),
                       .encoding = config_.gradient_encoding(chunks_.iteration()),
                       .hold = schedule_.HoldsAnswer(chunk) && !chunks_.is_again(chunk),
                       .view = view_,
                       .learning_rate = LearningRate(chunk)});
    }
  }
  return taken;
}

void ExchangeRound::Sent(absl::Span<const GradientHeader> headers) {
  {
    absl::MutexLock lock(&mutex_);
    for (const GradientHeader& header : headers) {
      if (header.iteration == chunks_.iteration()) chunks_.MarkSent(header.chunk);
    }
    ++moves_;
    if (!chunks_.MayRelease()) return;
    QueueReleased();
  }
  WakeAll();
}

absl::StatusOr<bool> ExchangeRound::Claim(int shard, const ParameterHeader& header) {
  const uint32_t chunk = header.chunk;
  const bool is_of_shard = chunk < plan_.chunks().size() && plan_.chunks()[chunk].shard == shard;
  absl::MutexLock lock(&mutex_);
  using State = ChunkStates::State;
  if (!is_of_shard || header.iteration > chunks_.iteration() ||
      (header.iteration == chunks_.iteration() &&
       (chunks_.state(chunk) == State::kBegun || chunks_.state(chunk) == State::kPushed))) {
    return absl::InternalError(absl::StrCat("it answered chunk ", chunk, " of iteration ",
                                            header.iteration, ", which was not asked for"));
  }
  if (header.iteration < chunks_.iteration() || header.view < view_ || !chunks_.IsPending(chunk)) {
    return false;
  }
  chunks_.Claim(chunk);
  has_answered_[shard] = true;
  newest_view_ = std::max(newest_view_, header.view);
  return true;
}

void ExchangeRound::Answered(uint32_t chunk, uint64_t version) {
  {
    absl::MutexLock lock(&mutex_);
    chunks_.Answer(chunk, version);
    ++moves_;
    if (!chunks_.MayRelease()) return;
    QueueReleased();
  }
  WakeAll();
}

void ExchangeRound::TakePulled(uint32_t chunk, uint64_t version, absl::Span<float> parameters) {
  if (version > 0) RoundTo(config_.proto().exchange().parameter_encoding(), parameters);
  absl::MutexLock lock(&mutex_);
  chunks_.SetVersion(chunk, version);
}

size_t ExchangeRound::ChunksAfter(uint64_t version) const {
  absl::MutexLock lock(&mutex_);
  return chunks_.ChunksAfter(version);
}

void ExchangeRound::Follow(uint64_t view, bool waits_for_others) {
  absl::MutexLock lock(&mutex_);
  view_ = view;
  waits_for_others_ = waits_for_others;
  ++moves_;
}

void ExchangeRound::SetAbandoned(bool abandoned) {
  absl::MutexLock lock(&mutex_);
  is_abandoned_ = abandoned;
  if (!abandoned) return;
  chunks_.GiveUp();
  ++moves_;
}

bool ExchangeRound::is_abandoned() const {
  absl::MutexLock lock(&mutex_);
  return is_abandoned_;
}

void ExchangeRound::End() {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(is_open_, false)) next_iteration_ = chunks_.iteration() + 1;
}

void ExchangeRound::Reset() {
  absl::MutexLock lock(&mutex_);
  failure_ = absl::OkStatus();
  newest_view_ = 0;
  is_open_ = is_abandoned_ = false;
  chunks_.Reset();
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
  return chunks_.unanswered() == 0 && view_ >= newest_view_;
}

bool ExchangeRound::TensorAnswered(int tensor) const {
  absl::MutexLock lock(&mutex_);
  return chunks_.unanswered_of_tensor(tensor) == 0;
}

bool ExchangeRound::AllAnswered() const {
  absl::MutexLock lock(&mutex_);
  return chunks_.unanswered() == 0;
}

absl::Status ExchangeRound::AwaitLayer(int layer) { return Await({.layer = layer}); }

absl::Status ExchangeRound::AwaitTensor(int tensor) { return Await({.tensor = tensor}); }

absl::Status ExchangeRound::AwaitAll() { return Await({}); }

absl::Status ExchangeRound::AwaitView() { return Await({.is_for_view = true}); }

size_t ExchangeRound::Remaining(const Wait& wait) const {
  if (wait.is_for_view) return view_ < newest_view_;
  if (wait.tensor.has_value()) return chunks_.unanswered_of_tensor(*wait.tensor);
  return wait.layer.has_value() ? chunks_.unanswered_of_layer(*wait.layer) : chunks_.unanswered();
}

absl::Status ExchangeRound::CheckPushed(const Wait& wait) const {
  if (PhaseLocked() != Phase::kPushing || wait.is_for_view || Remaining(wait) == 0) {
    return absl::OkStatus();
  }
  const std::vector<Tensor>& tensors = config_.model().tensors();
  int first = 0;
  int end = static_cast<int>(tensors.size());
  if (schedule_.pushes_early() && wait.tensor.has_value()) {
    first = *wait.tensor;
    end = first + 1;
  } else if (schedule_.pushes_early() && wait.layer.has_value()) {
    first = config_.model().layers()[*wait.layer].first_tensor;
    end = first + config_.model().layers()[*wait.layer].tensor_count;
  }
  int count = 0;
  std::string missing;
  for (int tensor = first; tensor < end; ++tensor) {
    if (!chunks_.is_pushed(tensor) && ++count == 1) missing = tensors[tensor].name;
  }
  if (count == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(count, count == 1 ? " tensor" : " tensors",
                   " of the iteration must be pushed before this wait, first ", missing));
}

void ExchangeRound::Flush() {
  if (phase() != Phase::kPushing) return;
  for (int shard = 0; shard < config_.shards(); ++shard) lanes_.Flush(shard);
  WakeAll();
}

absl::Status ExchangeRound::Await(const Wait& wait) {
  Flush();
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(CheckPushed(wait));
  wait_ = wait;
  ++moves_;
  const auto over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return Remaining(wait) == 0 || !failure_.ok();
  };
  const absl::Duration period =
      options_.while_waiting == nullptr ? absl::InfiniteDuration() : kWhileWaitingPeriod;
  while (!mutex_.AwaitWithTimeout(absl::Condition(&over), period)) {
    mutex_.Unlock();
    options_.while_waiting();
    mutex_.Lock();
  }
  wait_.reset();
  return failure_;
}

std::optional<Stall> ExchangeRound::CheckProgress(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  watch_.Look(now);
  if (!failure_.ok()) return std::nullopt;
  if (!wait_.has_value() || Remaining(*wait_) == 0 || moves_ != watch_.moves()) {
    return watch_.Moved(chunks_.iteration(), moves_);
  }
  const absl::Duration lasted = watch_.Stood();
  if (lasted >= limit_ && !waits_for_others_) {
    failure_ = absl::DeadlineExceededError(
        absl::StrCat("iteration ", chunks_.iteration(), ": ", Missing(*wait_), " for ",
                     absl::FormatDuration(limit_), " (limits.exchange_seconds)"));
    return std::nullopt;
  }
  if (lasted < StallWatch::kNewsAfter) return std::nullopt;
  return Stall{.iteration = chunks_.iteration(),
               .lasted = lasted,
               .missing = Missing(*wait_),
               .is_news = watch_.IsNews()};
}

std::string ExchangeRound::Missing(const Wait& wait) const {
  if (wait.is_for_view) {
    return absl::StrCat("view ", newest_view_, ", which a shard follows, has not come");
  }
  // Under SEQUENTIAL no shard answers while the last chunks wait for others to be sent.
  const bool is_for_sent = chunks_.has_waiting();
  std::vector<size_t> missing(config_.shards());
  std::vector<size_t> awaited(missing.size());
  for (const Chunk& chunk : plan_.chunks()) {
    const int layer = chunks_.layer_of(chunk.id);
    const bool is_other_layer = layer != wait.layer.value_or(layer);
    const bool is_other_tensor = chunk.tensor != wait.tensor.value_or(chunk.tensor);
    if (!is_for_sent && (is_other_layer || is_other_tensor)) continue;
    ++awaited[chunk.shard];
    const ChunkStates::State state = chunks_.state(chunk.id);
    missing[chunk.shard] +=
        is_for_sent ? state == ChunkStates::State::kQueued : state != ChunkStates::State::kAnswered;
  }

  std::vector<std::string> shards;
  for (size_t shard = 0; shard < missing.size(); ++shard) {
    if (missing[shard] == 0) continue;
    shards.push_back(absl::StrCat(options_.shard_name(static_cast<int>(shard)), " has not ",
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
