#include "worker/exchange/core/exchange_round.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/placement/plan/plan.h"
#include "common/wire/encoding.h"
#include "worker/exchange/core/not_pushed.h"

namespace evenshard {
namespace {

constexpr absl::Duration kLongestWatchPeriod = absl::Seconds(1);
constexpr absl::Duration kWhileWaitingPeriod = absl::Milliseconds(100);

}  // namespace

ExchangeRound::ExchangeRound(const Options& options)
    : options_(options),
      config_(*options.config),
      plan_(config_.plan()),
      is_asynchronous_(!config_.is_synchronous()),
      has_quorum_(config_.has_quorum()),
      carries_(has_quorum_ && config_.proto().update().late() == Update::CARRY),
      schedule_(config_),
      limit_(1.1 * config_.worker_patience() + absl::Seconds(1)),
      watch_period_(std::min(limit_ / 10, kLongestWatchPeriod)),
      watch_(watch_period_),
      chunks_(&config_, &schedule_, options.trace),
      is_connected_(config_.shards()),
      has_answered_(config_.shards()) {
  queues_.assign(config_.shards(),
                 PushQueue(config_.proto().limits().connections(), kMessageBytes));
}

ExchangeRound::Phase ExchangeRound::PhaseLocked() const {
  if (!is_open_) return Phase::kIdle;
  return chunks_.unpushed_tensors() > 0 ? Phase::kPushing : Phase::kPushed;
}

ExchangeRound::Phase ExchangeRound::phase() const {
  absl::MutexLock lock(&mutex_);
  return PhaseLocked();
}

absl::Status ExchangeRound::Begin(uint64_t iteration, ExchangeKind kind) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  if (is_open_) {
    return absl::FailedPreconditionError(
        "an iteration has begun, and not all of its tensors have been waited for");
  }
  if (is_behind_ && !kind.onlooks) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run has gone on to iteration ", next_iteration_,
                     " without this worker's gradient; allowed: to catch up with it first"));
  }
  is_open_ = true;
  kind_ = std::move(kind);
  answered_.reset();
  seen_ = {};
  chunks_.Begin(iteration, kind_.skip, kind_.assigned.has_value());
  ++moves_;
  return absl::OkStatus();
}

absl::Status ExchangeRound::CheckPush(absl::Span<const int> tensors) const {
  if (!is_open_) return absl::FailedPreconditionError("no iteration has begun");
  return CheckNotPushed(
      config_.model(), tensors,
      [this](int tensor) ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return chunks_.is_pushed(tensor); });
}

absl::Status ExchangeRound::Push(absl::Span<const int> tensors, Contribution contribution) {
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckPush(tensors));
    for (const int tensor : tensors) chunks_.Push(tensor, contribution);
    if (is_abandoned_) chunks_.GiveUp();
    QueueReleased();
  }
  WakeAll();
  return absl::OkStatus();
}

void ExchangeRound::Queue(uint32_t id) {
  const Chunk& chunk = plan_.chunks()[id];
  if (!is_connected_[chunk.shard]) return;
  PushQueue& queue = queues_[chunk.shard];
  if (const std::optional<int> stream = schedule_.LastOfStream(id); stream.has_value()) {
    queue.PushLast(*stream, id);
  } else {
    queue.Push(id, EncodedBytes(chunks_.encoding(id), chunk.size));
  }
}

void ExchangeRound::CompleteQueue(int shard) {
  if (chunks_.unpushed_tensors() > 0) return;
  if (schedule_.sorts_at_end()) queues_[shard].Prioritise();
  queues_[shard].Flush();
}

void ExchangeRound::QueueReleased() {
  for (const uint32_t chunk : chunks_.Release()) Queue(chunk);
  for (int shard = 0; shard < config_.shards(); ++shard) CompleteQueue(shard);
}

void ExchangeRound::WakeAll() const {
  for (int shard = 0; shard < config_.shards(); ++shard) options_.wake(shard);
}

void ExchangeRound::Open(int shard) {
  absl::MutexLock lock(&mutex_);
  is_connected_[shard] = true;
  queues_[shard].Clear();
  for (const uint32_t chunk : chunks_.QueueAgain(shard)) Queue(chunk);
  queues_[shard].Flush();  // somebody may wait for them
  CompleteQueue(shard);
}

void ExchangeRound::Close(int shard) {
  absl::MutexLock lock(&mutex_);
  is_connected_[shard] = has_answered_[shard] = false;
  queues_[shard].Clear();
}

Hyperparameters ExchangeRound::NumbersOf(uint32_t chunk) const {
  if (kind_.hyperparameters.empty() || chunks_.contribution(chunk) != Contribution::kGradient) {
    return {};
  }
  const int tensor = plan_.chunks()[chunk].tensor;
  const bool is_trained = config_.model().tensors()[tensor].role == TensorRole::kParameter;
  return is_trained ? kind_.hyperparameters[tensor] : Hyperparameters();
}

GradientHeader ExchangeRound::HeaderOf(uint32_t chunk) const {
  const Contribution contribution = chunks_.contribution(chunk);
  const bool has_steps = !kind_.steps.empty() && contribution == Contribution::kGradient;
  return {.worker = static_cast<uint32_t>(options_.rank),
          .incarnation = options_.incarnation,
          .iteration = chunks_.iteration(),
          .chunk = chunk,
          .base_version = chunks_.version(chunk),
          .skip = contribution == Contribution::kNothing,
          .encoding = chunks_.encoding(chunk),
          .hold = schedule_.HoldsAnswer(chunk) && !chunks_.is_again(chunk),
          .view = view_,
          .hyperparameters = NumbersOf(chunk),
          .absent = contribution == Contribution::kZeros,
          .assigned = kind_.assigned,
          .steps = has_steps ? kind_.steps[plan_.chunks()[chunk].tensor] : 0,
          .staleness = is_asynchronous_ ? chunks_.staleness() : 0,
          .onlooks = kind_.onlooks,
          .weight = kind_.weight + (kind_.skip ? 0 : carried_weight_)};
}

std::vector<GradientHeader> ExchangeRound::Take(int shard, int stream, bool has_data) {
  const int64_t most_bytes = has_data ? kMessageBytes : std::numeric_limits<int64_t>::max();
  std::vector<GradientHeader> taken;
  absl::MutexLock lock(&mutex_);
  while (taken.empty()) {
    const std::vector<uint32_t> popped = queues_[shard].Pop(stream, kMostChunks, most_bytes);
    if (popped.empty()) break;
    for (const uint32_t chunk : popped) {
      if (chunks_.IsPending(chunk)) taken.push_back(HeaderOf(chunk));
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
  // It answers once more the exchange before, whose number a catch-up may have too.
  if (header.dropped && kind_.onlooks) return false;
  if (!is_of_shard || header.iteration > chunks_.iteration() ||
      (header.iteration == chunks_.iteration() &&
       (chunks_.state(chunk) == State::kBegun || chunks_.state(chunk) == State::kPushed))) {
    return absl::InternalError(absl::StrCat("it answered chunk ", chunk, " of iteration ",
                                            header.iteration, ", which was not asked for"));
  }
  if (header.iteration < chunks_.iteration() || header.view < view_ || !chunks_.IsPending(chunk)) {
    return false;
  }
  if (header.unchanged && header.version != chunks_.version(chunk)) {
    return absl::InternalError(absl::StrCat("it answered chunk ", chunk,
                                            " as unchanged in version ", header.version,
                                            "; the worker has version ", chunks_.version(chunk)));
  }
  if (header.is_difference && header.version != chunks_.version(chunk) + 1) {
    return absl::InternalError(
        absl::StrCat("it answered chunk ", chunk, " with the difference that led to version ",
                     header.version, "; the worker has version ", chunks_.version(chunk)));
  }
  const auto encoding = static_cast<Encoding>(header.encoding);
  chunks_.Claim(
      chunk, header.all_absent,
      header.has_data() && (header.version != chunks_.version(chunk) || header.version == 0)
          ? EncodedBytes(encoding, plan_.chunks()[chunk].size)
          : 0);
  seen_.dropped |= header.dropped;
  seen_.least = std::min(seen_.least, header.next_iteration);
  seen_.most = std::max(seen_.most, header.next_iteration);
  has_answered_[shard] = true;
  answered_ = {.all = header.assignments, .recent = header.recent_assignments};
  newest_view_ = std::max(newest_view_, header.view);
  return true;
}

void ExchangeRound::Answered(uint32_t chunk, uint64_t version) { AnswerWith(chunk, version); }

void ExchangeRound::Dropped(uint32_t chunk) { AnswerWith(chunk, std::nullopt); }

void ExchangeRound::AnswerWith(uint32_t chunk, std::optional<uint64_t> version) {
  {
    absl::MutexLock lock(&mutex_);
    chunks_.Answer(chunk, version.value_or(chunks_.version(chunk)));
    ++moves_;
    if (!chunks_.MayRelease()) return;
    QueueReleased();
  }
  WakeAll();
}

void ExchangeRound::TakePulled(uint32_t chunk, uint64_t version, uint64_t iteration,
                               absl::Span<float> parameters) {
  if (version > 0) RoundTo(config_.ParameterEncoding(plan_.chunks()[chunk]), parameters);
  absl::MutexLock lock(&mutex_);
  chunks_.SetPulled(chunk, version, iteration);
}

uint64_t ExchangeRound::UpdatesOf(int tensor) const {
  absl::MutexLock lock(&mutex_);
  uint64_t updates = 0;
  for (const uint32_t chunk : plan_.chunks_of_tensor(tensor)) updates += chunks_.version(chunk);
  return updates;
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

void ExchangeRound::End() {
  absl::MutexLock lock(&mutex_);
  if (!std::exchange(is_open_, false)) return;
  const uint64_t next = chunks_.iteration() + 1;
  is_behind_ = has_quorum_ && (seen_.dropped || seen_.most > next || seen_.least < seen_.most);
  next_iteration_ = std::max(next, seen_.most);
  if (!kind_.skip) carried_weight_ = seen_.dropped && carries_ ? carried_weight_ + kind_.weight : 0;
  const uint64_t before = assignments_.all;
  assignments_ = answered_.value_or(assignments_);
  // Under ASYNC others may be answered before worker 0's initial parameters are there.
  if (kind_.assigned.has_value()) assignments_.all = std::max(assignments_.all, before + 1);
}

void ExchangeRound::Reset() {
  absl::MutexLock lock(&mutex_);
  failure_ = absl::OkStatus();
  newest_view_ = 0;
  is_open_ = is_abandoned_ = is_behind_ = false;
  carried_weight_ = 0;
  chunks_.Reset();
}

void ExchangeRound::Fail(const absl::Status& failure) {
  absl::MutexLock lock(&mutex_);
  failure_.Update(failure);
}

bool ExchangeRound::Settled() const {
  absl::MutexLock lock(&mutex_);
  return chunks_.unanswered() == 0 && view_ >= newest_view_;
}

absl::Status ExchangeRound::AwaitLayer(int layer) {
  const Layer& awaited = config_.model().layers()[layer];
  return Await({.begin = awaited.first_tensor, .end = awaited.first_tensor + awaited.tensor_count});
}

absl::Status ExchangeRound::AwaitAll() {
  return Await({.end = static_cast<int>(config_.model().tensors().size())});
}

size_t ExchangeRound::Remaining(const Wait& wait) const {
  if (wait.is_for_view) return view_ < newest_view_;
  return chunks_.unanswered_of_tensors(wait.begin, wait.end);
}

std::string ExchangeRound::Missing(const Wait& wait) const {
  if (wait.is_for_view) {
    return absl::StrCat("view ", newest_view_, ", which a shard follows, has not come");
  }
  return chunks_.Missing(wait.begin, wait.end, options_.shard_name);
}

absl::Status ExchangeRound::CheckPushed(const Wait& wait) const {
  if (PhaseLocked() != Phase::kPushing || wait.is_for_view || Remaining(wait) == 0) {
    return absl::OkStatus();
  }
  const std::vector<Tensor>& tensors = config_.model().tensors();
  const bool is_early = schedule_.pushes_early();
  const int end = is_early ? wait.end : static_cast<int>(tensors.size());
  int count = 0;
  std::string missing;
  for (int tensor = is_early ? wait.begin : 0; tensor < end; ++tensor) {
    if (!chunks_.is_pushed(tensor) && ++count == 1) missing = tensors[tensor].name;
  }
  if (count == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(count, count == 1 ? " tensor" : " tensors",
                   " of the iteration must be pushed before this wait, first ", missing));
}

void ExchangeRound::Flush() {
  {
    absl::MutexLock lock(&mutex_);
    if (PhaseLocked() != Phase::kPushing) return;
    for (PushQueue& queue : queues_) queue.Flush();
  }
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
    return watch_.Moved(Trained(), moves_);
  }
  const absl::Duration lasted = watch_.Stood();
  if (lasted >= limit_ && !waits_for_others_) {
    failure_ = absl::DeadlineExceededError(
        absl::StrCat("iteration ", Trained(), ": ", Missing(*wait_), " for ",
                     absl::FormatDuration(limit_), " (limits.exchange_seconds)"));
    return std::nullopt;
  }
  if (lasted < StallWatch::kNewsAfter) return std::nullopt;
  return Stall{.iteration = Trained(),
               .lasted = lasted,
               .missing = Missing(*wait_),
               .is_news = watch_.IsNews()};
}

}  // namespace evenshard
