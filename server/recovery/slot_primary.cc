#include "server/recovery/slot_primary.h"

#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/chunk_codec.h"
#include "server/agreement/norm_decider.h"

namespace evenshard {
namespace {

// How many streams a replica has for each connection of a worker. With one, the replica would get
// as large a part of a full link as a worker, which has as many bytes, if the round trip were as
// short. But all workers wait for the replica, and the way to it has two full links.
constexpr int kStreamsPerConnection = 4;

// After which part of recovery.silence_seconds without a receipt the replica counts as unreachable.
// The coordinator waits for silence_seconds from then on.
constexpr double kQuiet = 0.25;

}  // namespace

SlotPrimary::SlotPrimary(Options& options)
    : options_(std::move(options)),
      next_resumed_(options_.store->chunks().size()),
      resuming_(ChunkOrderOf(options_.config->proto().exchange())) {}

absl::StatusOr<std::unique_ptr<SlotPrimary>> SlotPrimary::Create(Options options) {
  std::unique_ptr<SlotPrimary> primary(new SlotPrimary(options));
  const Options& own = primary->options_;
  SlotPrimary* const self = primary.get();
  if (own.config->clips_mean()) primary->MakeClipping();
  if (own.config->has_quorum()) primary->MakeQuorum();
  std::vector<ChunkObserver*> observers;
  if (own.storage != nullptr) {
    primary->checkpointer_ = std::make_unique<Checkpointer>(Checkpointer::Options{
        .config = own.config,
        .slot = own.slot,
        .store = own.store,
        .takes_over = own.takes_over,
        .storage = own.storage,
        .clock = own.clock,
        .has_thread = own.has_threads,
        .breaks_cuts = own.breaks_cuts,
        .resume = [self](int index) { self->shard_->Resume(index); },
        .is_confirmed =
            [self](int index) {
              return self->replicator_ == nullptr || self->replicator_->IsConfirmed(index);
            },
        .holds_role = own.holds_roles});
    observers.push_back(primary->checkpointer_.get());
  }
  if (own.observer != nullptr) observers.push_back(own.observer);
  if (own.transport != nullptr && own.config->proto().recovery().replicas() > 0) {
    primary->replicator_ = std::make_unique<Replicator>(Replicator::Options{
        .slot = own.slot,
        .store = own.store,
        .transport = own.transport,
        .clock = own.clock,
        .streams = kStreamsPerConnection * own.config->proto().limits().connections(),
        .patience = kQuiet * absl::Seconds(own.config->proto().recovery().silence_seconds()),
        .confirm = [self](int index, uint64_t change) { self->shard_->Confirm(index, change); },
        .on_progress = own.on_progress,
        .on_failure = [self](const absl::Status& failure) { self->shard_->Fail(failure); }});
    observers.push_back(primary->replicator_.get());
  }
  ASSIGN_OR_RETURN(primary->shard_, Shard::Create({.config = own.config,
                                                   .slot = own.slot,
                                                   .clock = own.clock,
                                                   .store = own.store,
                                                   .observers = std::move(observers),
                                                   .clipping = primary->clipping_.get(),
                                                   .quorum = primary->quorum_.get(),
                                                   .history = own.history,
                                                   .holds_roles = own.holds_roles}));
  if (primary->timed_ != nullptr && own.has_threads) {
    primary->timer_ = std::jthread([timed = primary->timed_] { timed->RunTimer(); });
  }
  return primary;
}

SlotPrimary::~SlotPrimary() {
  if (timed_ != nullptr) timed_->StopTimer();
}

std::shared_ptr<AgreementReporter> SlotPrimary::MakeReporter(AgreementSubject* subject) {
  return std::make_shared<AgreementReporter>(AgreementReporter::Options{
      .slot = options_.slot,
      .subject = subject,
      .transport = options_.agreements,
      .clock = options_.clock,
      .patience = absl::Seconds(options_.config->proto().limits().exchange_seconds()),
      .on_known = [this] { ResumeAll(); },
      .on_failure = [this](const absl::Status& failure) { shard_->Fail(failure); }});
}

void SlotPrimary::MakeClipping() {
  clipping_ = std::make_unique<Clipping>(
      Clipping::Options{.config = options_.config,
                        .slot = options_.slot,
                        .store = options_.store.get(),
                        .on_part = [this] { norm_.reporter->Report(); }});
  if (Clipping::TakesPart(*options_.config, options_.slot)) {
    norm_.reporter = MakeReporter(clipping_.get());
  }
  if (options_.slot == 0) norm_.decider = std::make_unique<NormDecider>(options_.config);
}

void SlotPrimary::MakeQuorum() {
  quorum_ =
      std::make_unique<Quorum>(Quorum::Options{.config = options_.config,
                                               .slot = options_.slot,
                                               .store = options_.store.get(),
                                               .on_arrival = [this] { set_.reporter->Report(); }});
  if (QuorumDecider::TakesPart(*options_.config)[options_.slot]) {
    set_.reporter = MakeReporter(quorum_.get());
  }
  if (options_.slot != 0) return;
  auto decider = std::make_unique<QuorumDecider>(options_.config, options_.clock);
  timed_ = decider.get();
  set_.decider = std::move(decider);
}

void SlotPrimary::TakeReport(const AgreementReport& report, AgreementDecider::Answer answer) const {
  const Agreement& agreement = report.has_quorum() ? set_ : norm_;
  if (agreement.decider != nullptr) return agreement.decider->Take(report, std::move(answer));
  answer(absl::UnavailableError(absl::StrCat(
      "slot ", options_.slot, " decides on nothing that slot ", report.slot(), " asks for")));
}

void SlotPrimary::ResumeAll() {
  if (!options_.has_threads) {
    next_resumed_ = 0;
    options_.on_progress();
    return;
  }
  // Small chunks go together: one takes a thread less time than to be woken for it.
  const std::deque<StoredChunk>& chunks = options_.store->chunks();
  size_t first = 0;
  int64_t bytes = 0;
  for (size_t index = 0; index < chunks.size(); ++index) {
    bytes += chunks[index].info().size * static_cast<int64_t>(sizeof(float));
    if (bytes < kMessageBytes && index + 1 < chunks.size()) continue;
    resuming_.Add(chunks[first].info().id, [this, first, index] {
      for (size_t i = first; i <= index; ++i) shard_->Resume(static_cast<int>(i));
    });
    first = index + 1;
    bytes = 0;
  }
}

void SlotPrimary::Adopt(const View& view) {
  if (checkpointer_ != nullptr) checkpointer_->Adopt(view);
  // The replicator goes first: changes that complete in the new view go to the new replica.
  if (replicator_ != nullptr) replicator_->Adopt(view);
  const absl::StatusOr<SlotPosition> position = shard_->Adopt(view);
  const SlotView& first = view.slot(0);
  for (const Agreement* agreement : Agreements()) {
    if (agreement->decider != nullptr) agreement->decider->Adopt(view);
    if (agreement->reporter == nullptr) continue;
    agreement->reporter->Adopt(view.number(),
                               first.has_primary() ? std::optional(first.primary()) : std::nullopt);
  }
  absl::MutexLock lock(&mutex_);
  generation_ = view.generation();
  handing_over_ = view.slot(options_.slot).handing_over();
  position_ = position.ok() && view.worker_set_changes() ? std::optional(*position) : std::nullopt;
}

void SlotPrimary::AdoptWithoutViews(const View& view) {
  if (checkpointer_ != nullptr) checkpointer_->Adopt(view);
  ProcessId decider;
  decider.set_address(options_.config->process_address(0));
  for (const Agreement* agreement : Agreements()) {
    if (agreement->reporter != nullptr) agreement->reporter->Adopt(/*view=*/0, decider);
  }
}

void SlotPrimary::Describe(ProcessState* state) const {
  absl::MutexLock lock(&mutex_);
  if (position_.has_value() && (replicator_ == nullptr || replicator_->unconfirmed() == 0)) {
    ProcessState::Position* position = state->add_position();
    position->set_slot(options_.slot);
    position->set_iteration(position_->iteration);
    position->set_least_iteration(position_->least_iteration);
    position->set_assignments(position_->assignments);
  }
  if (shard_->has_lost_state()) state->set_lost_state(generation_);
  if (replicator_ == nullptr) return;
  if (replicator_->is_filled()) state->add_filled(options_.slot);
  if (replicator_->is_unreachable()) state->add_unreachable(options_.slot);
  if (handing_over_ && replicator_->is_idle()) state->add_handed_over(options_.slot);
}

void SlotPrimary::FillStats(ShardStats::Recovery* recovery) const {
  if (checkpointer_ != nullptr) checkpointer_->FillStats(recovery);
  if (replicator_ == nullptr) return;
  recovery->set_replication_lag(replicator_->unconfirmed());
  recovery->set_unfilled_chunks(replicator_->unfilled());
}

void SlotPrimary::Tick() {
  if (replicator_ != nullptr) replicator_->Tick();
  if (checkpointer_ != nullptr) checkpointer_->Tick();
  for (const Agreement* agreement : Agreements()) {
    if (agreement->reporter != nullptr) agreement->reporter->Tick();
    if (agreement->decider != nullptr) agreement->decider->TellMissing(options_.clock->Now());
  }
  if (timed_ != nullptr) timed_->Tick();
}

bool SlotPrimary::Work() {
  if (const size_t index = next_resumed_; index < options_.store->chunks().size()) {
    next_resumed_ = index + 1;
    shard_->Resume(static_cast<int>(index));
    return true;
  }
  return checkpointer_ != nullptr && checkpointer_->Work();
}

void SlotPrimary::FinishCheckpoint(absl::Time deadline) {
  const bool is_over = shard_->IsOver() && !shard_->has_failed();
  if (checkpointer_ != nullptr) checkpointer_->FinishBy(deadline, is_over);
}

std::shared_ptr<ParameterStore> SlotPrimary::Retire(const absl::Status& reason) {
  std::shared_ptr<ParameterStore> store = shard_->Retire(reason);
  // They stay, because other threads may be in Tick or Describe.
  if (checkpointer_ != nullptr) checkpointer_->Stop();
  if (replicator_ != nullptr) replicator_->Stop();
  for (const Agreement* agreement : Agreements()) {
    if (agreement->reporter != nullptr) agreement->reporter->Stop();
    if (agreement->decider != nullptr) agreement->decider->End(reason);
  }
  if (timed_ != nullptr) timed_->StopTimer();
  if (timer_.joinable()) timer_.join();
  resuming_.End();
  return store;
}

}  // namespace evenshard
