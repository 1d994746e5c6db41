#include "worker/exchange/core/exchange_core.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/control/view/worker_set.h"
#include "common/placement/plan.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

constexpr absl::Duration kShortestTick = absl::Milliseconds(10);

SlotPatience PatienceOf(const Limits& limits, bool has_views, absl::Duration exchange) {
  return {.has_views = has_views,
          .startup = absl::Seconds(limits.startup_seconds()),
          .reconnect = absl::Seconds(limits.reconnect_seconds()),
          .exchange = exchange};
}

}  // namespace

ExchangeCore::ExchangeCore(const Options& options)
    : config_(*options.config),
      options_(options),
      lanes_(options.config),
      answers_(config_.shards()),
      addresses_(options.addresses),
      round_(
          config_, [this](int slot) { return SlotName(slot); }, options.trace,
          options.while_waiting),
      patience_(PatienceOf(config_.proto().limits(), options.has_views, round_.limit())) {
  tick_period_ = std::min(round_.watch_period(), patience_.startup / 10);
  if (patience_.reconnect > absl::ZeroDuration()) {
    tick_period_ = std::min(tick_period_, patience_.reconnect / 10);
  }
  tick_period_ = std::max(tick_period_, kShortestTick);
  absl::MutexLock lock(&mutex_);
  for (int slot = 0; slot < config_.shards(); ++slot) slots_.emplace_back(slot, &patience_);
  absl::MutexLock names_lock(&names_mutex_);
  addresses_.resize(config_.shards());
}

void ExchangeCore::Start() {
  std::vector<int> wake;
  {
    absl::MutexLock lock(&mutex_);
    moved_ = options_.clock->Now();
    if (has_failed_) return;
    if (options_.has_views) {
      stage_ = Stage::kWaiting;
      if (view_.number() > 0) wake = Adopt();
    } else {
      stage_ = Stage::kJoining;
      for (size_t slot = 0; slot < slots_.size(); ++slot) {
        ProcessId process;
        process.set_address(options_.addresses[slot]);
        slots_[slot].MoveTo(process);
      }
      ConnectSlots();
    }
  }
  for (const int slot : wake) options_.transport->Wake(slot);
}

void ExchangeCore::OnView(const View& view) {
  std::vector<int> wake;
  {
    absl::MutexLock lock(&mutex_);
    if (stage_ == Stage::kStopped || view.number() <= view_.number()) return;
    view_ = view;
    moved_ = options_.clock->Now();
    if (stage_ != Stage::kIdle) wake = Adopt();
  }
  for (const int slot : wake) options_.transport->Wake(slot);
}

void ExchangeCore::OnEnd(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  is_dismissed_ = true;
  if (reason.ok() && says_finished_) {
    is_finished_ = true;
  } else {
    FailLocked(reason.ok() ? absl::AbortedError("the run has ended") : reason);
  }
}

WorkerView::State ExchangeCore::OwnState() const {
  if (options_.rank >= view_.worker_size()) return WorkerView::ABSENT;
  const WorkerView& self = view_.worker(options_.rank);
  return self.incarnation() == options_.incarnation ? self.state() : WorkerView::ABSENT;
}

std::vector<int> ExchangeCore::Adopt() {
  if (has_failed_) return {};
  if (generation_ != 0 && view_.generation() != generation_) {
    if (stage_ == Stage::kRunning || stage_ == Stage::kLeaving) {
      const std::string to = view_.checkpoint().empty()
                                 ? "the initial parameters"
                                 : absl::StrCat("checkpoint ", view_.checkpoint());
      FailLocked(absl::AbortedError(
          absl::StrCat("the run goes back to ", to, " (view ", view_.number(), ")")));
      ForgetSlots();
      stage_ = Stage::kWentBack;
      says_finished_ = false;
      return {};
    }
    ForgetSlots();
    stage_ = Stage::kWaiting;
  }
  const WorkerView::State state = OwnState();
  if (state == WorkerView::FINISHED) {
    is_finished_ = stage_ == Stage::kLeaving;
    return {};
  }
  if (state != WorkerView::MEMBER) {
    if (is_member_ && state != WorkerView::JOINING) {
      is_dismissed_ = true;
      FailLocked(absl::FailedPreconditionError(
          absl::StrCat("the run counts this worker as lost (view ", view_.number(), ")")));
    }
    return {};
  }
  is_member_ = true;
  if (stage_ == Stage::kWaiting) {
    stage_ = Stage::kJoining;
    generation_ = view_.generation();
  }
  const auto is_absent = [this](uint32_t rank) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return view_.worker(static_cast<int>(rank)).state() == WorkerView::ABSENT;
  };
  round_.Follow(view_.number(), !view_.worker_set().empty() &&
                                    absl::c_any_of(LastWorkerSet(view_.worker_set()), is_absent));
  std::vector<int> wake = MoveSlots();
  CheckCatchUp();
  return wake;
}

std::vector<int> ExchangeCore::MoveSlots() {
  std::vector<int> wake;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int index = static_cast<int>(i);
    const SlotView& now =
        index < view_.slot_size() ? view_.slot(index) : SlotView::default_instance();
    SlotLink& slot = slots_[i];
    if (now.has_primary() && slot.IsAt(now.primary())) {
      if (stage_ == Stage::kLeaving) continue;
      if (slot.is_connected()) {
        PushAgain(index);
        wake.push_back(index);
      } else if (slot.is_attempting()) {
        // Its Join names an older view.
        slot.ForgetPause();
        Attempt(index, absl::ZeroDuration());
      }
      continue;
    }
    Drop(index);
    if (!now.has_primary()) {
      slot.MoveNowhere();
      continue;
    }
    slot.MoveTo(now.primary());
    absl::MutexLock lock(&names_mutex_);
    addresses_[i] = now.primary().address();
  }
  ConnectSlots();
  return wake;
}

void ExchangeCore::ForgetSlots() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Drop(static_cast<int>(i));
    slots_[i].Forget();
  }
  generation_ = 0;
}

void ExchangeCore::ConnectSlots() {
  if (stage_ != Stage::kJoining && stage_ != Stage::kRunning) return;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (i > 0 && stage_ == Stage::kJoining && !slots_[0].has_joined()) break;
    if (slots_[i].IsIdle()) Attempt(static_cast<int>(i), absl::ZeroDuration());
  }
}

void ExchangeCore::Attempt(int index, absl::Duration delay) {
  lanes_.Clear(index);
  answers_[index] = false;
  const absl::Time now = options_.clock->Now();
  const absl::Time begin = now + delay;
  JoinRequest join;
  join.set_worker(options_.rank);
  join.set_incarnation(options_.incarnation);
  join.set_config_fingerprint(config_.fingerprint());
  join.set_plan_fingerprint(config_.plan().fingerprint());
  join.set_plan_version(kPlanVersion);
  join.set_protocol_version(kProtocolVersion);
  *join.mutable_config() = config_.Contract();
  for (const Encoding encoding : {FLOAT32, FLOAT16, BFLOAT16}) join.add_encodings(encoding);
  if (options_.has_views) {
    join.set_slot(index);
    join.set_view(view_.number());
  }
  options_.transport->Connect({.slot = index,
                               .number = slots_[index].Begin(begin, now),
                               .address = slots_[index].address(),
                               .not_before = begin,
                               .join = std::move(join)});
}

void ExchangeCore::Drop(int index) {
  if (!slots_[index].Drop(options_.clock->Now())) return;
  lanes_.Clear(index);
  options_.transport->Disconnect(index);
}

void ExchangeCore::Connected(int index, uint64_t attempt, const JoinResponse& response) {
  {
    absl::MutexLock lock(&mutex_);
    SlotLink& slot = slots_[index];
    if (!slot.IsCurrent(attempt) || slot.is_connected()) return;
    const absl::Time now = options_.clock->Now();
    if (const absl::Status accepted = slot.Accept(response, now); !accepted.ok()) {
      FailLocked(accepted);
      return;
    }
    moved_ = now;
    if (stage_ == Stage::kJoining) {
      ConnectSlots();
      if (!absl::c_all_of(slots_, std::mem_fn(&SlotLink::has_joined))) return;
      if (const absl::Status begun = BeginRunning(); !begun.ok()) FailLocked(begun);
      return;
    }
    if (stage_ != Stage::kRunning) return;
    PushAgain(index);
  }
  options_.transport->Wake(index);
}

absl::Status ExchangeCore::BeginRunning() {
  const auto [least, most] =
      absl::c_minmax_element(slots_, [](const SlotLink& a, const SlotLink& b) {
        return a.start_iteration() < b.start_iteration();
      });
  // A worker that was lost in the middle of an iteration has pushed it to some slots only.
  if (!options_.has_views && most->start_iteration() > least->start_iteration() + 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the shards are not of one run: ", most->name(),
        " has taken this worker's iterations before ", most->start_iteration(), ", ", least->name(),
        " those before ", least->start_iteration(), "; start all shards again"));
  }
  const bool is_sync = config_.proto().update().policy() == Update::SYNC;
  const bool begins_at_least = is_sync || config_.IsInitial(least->start_iteration());
  start_iteration_ = begins_at_least ? least->start_iteration() : most->start_iteration();
  catch_up_ = {};
  if (options_.has_views && is_sync) {
    if (view_.worker_set().empty() || !IsInLastWorkerSet(view_.worker_set(), options_.rank)) {
      return absl::InternalError(absl::StrCat("view ", view_.number(), " has worker ",
                                              options_.rank,
                                              " as a member and not in its worker set"));
    }
    const uint64_t from = InWorkerSetSince(view_.worker_set(), options_.rank);
    if (start_iteration_ < from) {
      start_iteration_ = from;
      catch_up_.iteration = from - 1;
    }
  }
  stage_ = Stage::kRunning;
  CheckCatchUp();
  return absl::OkStatus();
}

void ExchangeCore::CheckCatchUp() {
  if (stage_ != Stage::kRunning || !catch_up_.iteration.has_value()) return;
  // Those who join with this worker wait for the same iteration. If nobody else counts in it and
  // stays, the shards answer by themselves.
  bool all_finished = false;
  for (const uint32_t rank : WorkerSetAt(view_.worker_set(), *catch_up_.iteration)) {
    if (!IsInLastWorkerSet(view_.worker_set(), rank)) continue;
    if (view_.worker(static_cast<int>(rank)).state() != WorkerView::FINISHED) return;
    all_finished = true;
  }
  if (!all_finished) return;
  catch_up_.abandoned = true;
  round_.GiveUp();
}

void ExchangeCore::Broken(int index, uint64_t attempt, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  SlotLink& slot = slots_[index];
  if (!slot.IsCurrent(attempt)) return;
  if (has_failed_ || (stage_ != Stage::kJoining && stage_ != Stage::kRunning)) return;
  const absl::StatusOr<absl::Duration> pause = slot.Break(status, answers_[index]);
  if (pause.ok()) {
    Attempt(index, *pause);
  } else {
    FailLocked(pause.status());
  }
}

void ExchangeCore::Tick() {
  absl::MutexLock lock(&mutex_);
  has_failed_ = has_failed_ || !round_.failure().ok();
  if (has_failed_) return;
  const absl::Time now = options_.clock->Now();
  const absl::Duration limit = round_.limit();
  if (stage_ == Stage::kWaiting) {
    if (view_.number() == 0 && now - moved_ >= patience_.startup) {
      FailLocked(absl::DeadlineExceededError(
          absl::StrCat("nobody has said within ", absl::ToDoubleSeconds(patience_.startup),
                       " s where the shards are (limits.startup_seconds)")));
    } else if (view_.number() > 0 && now - moved_ >= limit) {
      FailLocked(absl::DeadlineExceededError(
          absl::StrCat("the run has not taken this worker in for ", absl::FormatDuration(limit),
                       " (limits.exchange_seconds; view ", view_.number(), ")")));
    }
  } else if (stage_ == Stage::kLeaving && says_finished_ && now - moved_ >= limit) {
    FailLocked(absl::DeadlineExceededError(
        absl::StrCat("the run has not noticed that this worker has finished for ",
                     absl::FormatDuration(limit), " (limits.exchange_seconds)")));
  } else if (stage_ == Stage::kJoining || stage_ == Stage::kRunning) {
    absl::Status first;
    std::vector<std::string> messages;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (const absl::Status checked = slots_[slot].Check(now); !checked.ok()) {
        first.Update(checked);
        messages.emplace_back(checked.message());
      } else if (slots_[slot].IsStale(now)) {
        Attempt(static_cast<int>(slot), absl::ZeroDuration());
      }
    }
    if (!first.ok()) FailLocked(absl::Status(first.code(), absl::StrJoin(messages, "; ")));
  }
}

void ExchangeCore::Fail(const absl::Status& failure) {
  absl::MutexLock lock(&mutex_);
  FailLocked(failure);
}

void ExchangeCore::FailLocked(const absl::Status& failure) {
  if (stage_ == Stage::kWentBack) {
    later_failure_.Update(failure);
    return;
  }
  round_.Fail(failure);
  has_failed_ = true;
}

std::vector<GradientHeader> ExchangeCore::Take(int slot, int stream, bool has_data) {
  std::vector<GradientHeader> taken;
  std::vector<uint32_t> chunks;
  do {
    chunks = lanes_.Pop(slot, stream, has_data);
    for (const uint32_t chunk : chunks) {
      const std::optional<ExchangeRound::Push> push = round_.ToSend(chunk);
      if (!push.has_value()) continue;
      taken.push_back({.worker = static_cast<uint32_t>(options_.rank),
                       .incarnation = options_.incarnation,
                       .iteration = push->iteration,
                       .chunk = chunk,
                       .base_version = push->base_version,
                       .skip = push->skip,
                       .encoding = config_.gradient_encoding(push->iteration),
                       .hold = lanes_.IsHeld(chunk) && !push->again,
                       .view = push->view,
                       .learning_rate = push->learning_rate});
    }
  } while (taken.empty() && !chunks.empty());
  return taken;
}

absl::StatusOr<bool> ExchangeCore::Claim(int slot, const ParameterHeader& header) {
  const std::vector<Chunk>& chunks = config_.plan().chunks();
  if (header.chunk >= chunks.size() || chunks[header.chunk].shard != slot) {
    return absl::InternalError(absl::StrCat("it answered chunk ", header.chunk, " of iteration ",
                                            header.iteration, ", which was not asked for"));
  }
  absl::StatusOr<bool> counts = round_.Claim(header.chunk, header.iteration, header.view);
  if (counts.ok() && *counts) answers_[slot].store(true, std::memory_order_relaxed);
  return counts;
}

absl::Status ExchangeCore::Begin(uint64_t iteration, bool skip,
                                 absl::Span<const float> learning_rates) {
  absl::MutexLock lock(&mutex_);
  all_pushed_ = false;
  return round_.Begin(iteration, skip, learning_rates);
}

void ExchangeCore::Push(absl::Span<const uint32_t> chunks, bool all, bool skip) {
  {
    absl::MutexLock lock(&mutex_);
    round_.Pushed(chunks, skip);
    all_pushed_ = all;
    for (const uint32_t chunk : chunks) {
      if (slots_[config_.plan().chunks()[chunk].shard].is_connected()) lanes_.Queue(chunk);
    }
    for (int slot = 0; all && slot < config_.shards(); ++slot) lanes_.AllQueued(slot);
    if (catch_up_.abandoned) round_.GiveUp();
  }
  for (int slot = 0; slot < config_.shards(); ++slot) options_.transport->Wake(slot);
}

void ExchangeCore::Flush() {
  for (int slot = 0; slot < config_.shards(); ++slot) {
    lanes_.Flush(slot);
    options_.transport->Wake(slot);
  }
}

void ExchangeCore::PushAgain(int slot) {
  lanes_.Clear(slot);
  for (const uint32_t chunk : round_.PushAgain(slot)) lanes_.Queue(chunk);
  lanes_.Flush(slot);  // somebody may wait for them
  if (all_pushed_) lanes_.AllQueued(slot);
}

void ExchangeCore::Resume() {
  std::vector<int> wake;
  {
    absl::MutexLock lock(&mutex_);
    if (stage_ != Stage::kWentBack) return;
    round_.Reset();
    has_failed_ = is_finished_ = false;
    catch_up_ = {};
    stage_ = Stage::kWaiting;
    moved_ = options_.clock->Now();
    if (!later_failure_.ok()) FailLocked(later_failure_);
    wake = Adopt();
  }
  for (const int slot : wake) options_.transport->Wake(slot);
}

void ExchangeCore::Finish(bool announced) {
  absl::MutexLock lock(&mutex_);
  moved_ = options_.clock->Now();
  if (stage_ != Stage::kRunning && stage_ != Stage::kLeaving) return;
  stage_ = Stage::kLeaving;
  says_finished_ = announced;
}

void ExchangeCore::Stop(const absl::Status& outcome) {
  absl::MutexLock lock(&mutex_);
  stage_ = Stage::kStopped;
  if (!outcome.ok() && !absl::IsCancelled(outcome) && !is_dismissed_) {
    gave_up_ = std::string(outcome.message());
  }
}

bool ExchangeCore::ready() const {
  absl::MutexLock lock(&mutex_);
  return stage_ == Stage::kRunning || stage_ == Stage::kLeaving;
}

bool ExchangeCore::went_back() const {
  absl::MutexLock lock(&mutex_);
  return stage_ == Stage::kWentBack;
}

bool ExchangeCore::finished() const {
  absl::MutexLock lock(&mutex_);
  return is_finished_;
}

uint64_t ExchangeCore::start_iteration() const {
  absl::MutexLock lock(&mutex_);
  return start_iteration_;
}

ExchangeCore::CatchUp ExchangeCore::catch_up() const {
  absl::MutexLock lock(&mutex_);
  return catch_up_;
}

void ExchangeCore::EndCatchUp() {
  absl::MutexLock lock(&mutex_);
  catch_up_ = {};
}

uint64_t ExchangeCore::view_number() const {
  absl::MutexLock lock(&mutex_);
  return view_.number();
}

std::vector<WorkerSet> ExchangeCore::worker_sets() const {
  if (options_.has_views && config_.proto().update().policy() == Update::SYNC) {
    absl::MutexLock lock(&mutex_);
    return {view_.worker_set().begin(), view_.worker_set().end()};
  }
  std::vector<WorkerSet> worker_sets(1);
  for (int rank = 0; rank < config_.workers(); ++rank) worker_sets[0].add_rank(rank);
  return worker_sets;
}

ProcessState ExchangeCore::State() const {
  ProcessState state;
  state.set_worker(options_.rank);
  state.set_incarnation(options_.incarnation);
  state.set_config_fingerprint(config_.run_fingerprint());
  if (config_.is_from_workers()) *state.mutable_declaration() = config_.declaration();
  absl::MutexLock lock(&mutex_);
  state.set_view(view_.number());
  state.set_finished(says_finished_);
  state.set_failure(gave_up_);
  return state;
}

std::string ExchangeCore::SlotName(int slot) const {
  absl::MutexLock lock(&names_mutex_);
  return absl::StrCat("shard ", slot, " (", addresses_[slot], ")");
}

absl::Status ExchangeCore::AwaitReady() {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_failed_ || stage_ == Stage::kRunning;
  };
  mutex_.Await(absl::Condition(&over));
  return round_.failure();
}

absl::Status ExchangeCore::AwaitFinished() {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_failed_ || is_finished_;
  };
  mutex_.Await(absl::Condition(&over));
  return is_finished_ ? absl::OkStatus() : round_.failure();
}

absl::Status ExchangeCore::AwaitConnected(int slot) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this, slot]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_failed_ || slots_[slot].is_connected();
  };
  mutex_.Await(absl::Condition(&over));
  return round_.failure();
}

}  // namespace evenshard
