#include "server/recovery/slot_host.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/control/view/view_check.h"
#include "server/recovery/initial_state.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

bool IsSame(const ProcessId& a, const ProcessId& b) {
  return a.process() == b.process() && a.incarnation() == b.incarnation();
}

// How long until a slot's state that could not be read is tried again.
constexpr absl::Duration kLoadPause = absl::Seconds(1);

// Whether what could not be read from a checkpoint may be read later.
bool MayPass(const absl::Status& status) {
  return !absl::IsDataLoss(status) && !absl::IsFailedPrecondition(status) &&
         !absl::IsInvalidArgument(status) && !absl::IsInternal(status);
}

// Tells the histories of a slot's parameters apart: one for each generation of a run.
uint64_t HistoryOf(const View& view) { return view.run() + view.generation(); }

}  // namespace

SlotHost::SlotHost(const Options& options) : options_(options) {}

absl::StatusOr<std::unique_ptr<SlotHost>> SlotHost::Start(const Options& options) {
  std::unique_ptr<SlotHost> host(new SlotHost(options));
  if (options.has_views) return host;
  const int slot = static_cast<int>(options.self.process());
  ASSIGN_OR_RETURN(std::shared_ptr<ParameterStore> store, host->LoadStore(slot, options.start));
  // Only a run with checkpoints can be resumed, and then all slots of it begin the same history.
  ASSIGN_OR_RETURN(const std::shared_ptr<SlotPrimary> primary,
                   host->MakePrimary(slot, std::move(store),
                                     options.storage == nullptr ? 0 : HistoryOf(options.start),
                                     /*takes_over=*/false));
  primary->AdoptWithoutViews(options.start);
  absl::MutexLock lock(&host->mutex_);
  host->primaries_[slot] = primary;
  return host;
}

SlotHost::~SlotHost() {
  const absl::Status reason =
      absl::UnavailableError(absl::StrCat("ps ", options_.self.process(), " has ended"));
  std::map<int, std::shared_ptr<SlotPrimary>> primaries;
  {
    absl::MutexLock lock(&mutex_);
    primaries.swap(primaries_);
    copies_.clear();
  }
  for (const auto& [slot, primary] : primaries) primary->Retire(reason);
}

absl::StatusOr<std::shared_ptr<SlotPrimary>> SlotHost::MakePrimary(
    int slot, std::shared_ptr<ParameterStore> store, uint64_t history, bool takes_over) {
  ASSIGN_OR_RETURN(std::shared_ptr<SlotPrimary> primary,
                   SlotPrimary::Create({.config = options_.config,
                                        .slot = slot,
                                        .clock = options_.clock,
                                        .store = std::move(store),
                                        .history = history,
                                        .takes_over = takes_over,
                                        .transport = options_.transport,
                                        .storage = options_.storage,
                                        .agreements = this,
                                        .has_threads = options_.has_threads,
                                        .breaks_cuts = options_.breaks_cuts,
                                        .holds_roles = options_.holds_roles,
                                        .on_progress = options_.on_state,
                                        .observer = options_.observer}));
  options_.on_primary(*primary->shard());
  return primary;
}

void SlotHost::Adopt(const View& view) {
  absl::MutexLock adopting(&adopt_mutex_);
  if (has_ended_) return;
  uint64_t generation;
  {
    absl::MutexLock lock(&mutex_);
    if (view.number() <= view_.number()) return;
    generation = view_.generation();
  }
  const absl::Status fits = CheckView(view, options_.config->shards(), options_.config->workers());
  if (!fits.ok()) {
    Fail(fits);
    options_.on_state();
    return;
  }
  for (int slot = 0; slot < view.slot_size() && view.generation() != generation; ++slot) {
    Drop(slot, absl::UnavailableError(absl::StrCat(
                   "slot ", slot, " goes back to a checkpoint in view ", view.number())));
  }
  for (int slot = 0; slot < view.slot_size(); ++slot) TakeRoles(slot, view);
  {
    absl::MutexLock lock(&mutex_);
    view_ = view;
  }
  options_.on_state();
}

void SlotHost::TakeRoles(int slot, const View& view) {
  const absl::Status adopted = AdoptSlot(slot, view);
  const absl::Time now = options_.clock->Now();
  {
    absl::MutexLock lock(&mutex_);
    if (adopted.ok()) {
      unloaded_since_.erase(slot);
      if (unloaded_since_.empty()) unreadable_.Clear();
      return;
    }
    const auto [since, is_first] = unloaded_since_.emplace(slot, now);
    load_again_ = now + kLoadPause;
    const Limits& limits = options_.config->proto().limits();
    const absl::Duration patience =
        absl::Seconds(std::min(limits.startup_seconds(), limits.exchange_seconds() / 4));
    if (MayPass(adopted) && now < since->second + patience) {
      if (is_first) spdlog::warn("{}; trying again", std::string(adopted.message()));
      return;
    }
    if (!view.checkpoint().empty() && !absl::IsInternal(adopted)) {
      if (unreadable_.checkpoint().empty()) spdlog::error("{}", std::string(adopted.message()));
      unreadable_.set_checkpoint(view.checkpoint());
      unreadable_.set_why(std::string(adopted.message()));
      return;
    }
    unloaded_since_.erase(slot);
  }
  Fail(adopted);
}

void SlotHost::LoadAgain() {
  {
    absl::MutexLock lock(&mutex_);
    if (unloaded_since_.empty() || options_.clock->Now() < load_again_) return;
  }
  absl::MutexLock adopting(&adopt_mutex_);
  const View present = view();
  for (int slot = 0; slot < options_.config->shards(); ++slot) {
    if (IsUnloaded(slot)) TakeRoles(slot, present);
  }
  options_.on_state();
}

bool SlotHost::IsUnloaded(int slot) const {
  absl::MutexLock lock(&mutex_);
  return unloaded_since_.contains(slot);
}

absl::Status SlotHost::AdoptSlot(int slot, const View& view) {
  const SlotView& roles = view.slot(slot);
  std::shared_ptr<SlotPrimary> primary;
  std::shared_ptr<SlotReplica> copy;
  bool is_new_generation;
  {
    absl::MutexLock lock(&mutex_);
    if (primaries_.contains(slot)) primary = primaries_[slot];
    if (copies_.contains(slot)) copy = copies_[slot];
    // Where the state could not be read so far, nothing has changed since the generation began: no
    // update is answered before both the primary and a complete replica have it.
    is_new_generation = view.generation() != view_.generation() || unloaded_since_.contains(slot);
  }
  const bool becomes_primary = IsSame(roles.primary(), options_.self);
  const bool becomes_copy = !becomes_primary && IsSame(roles.replica(), options_.self);
  const absl::Status reason = absl::UnavailableError(absl::StrCat("ps ", options_.self.process(),
                                                                  " is not primary of slot ", slot,
                                                                  " in view ", view.number()));

  if (becomes_primary && primary == nullptr) {
    std::shared_ptr<ParameterStore> store;
    if (copy != nullptr) {
      store = copy->Retire();
    } else if (is_new_generation) {
      ASSIGN_OR_RETURN(store, LoadStore(slot, view));
    } else {
      return DoesNotHave(view, "primary of", slot);
    }
    ASSIGN_OR_RETURN(primary, MakePrimary(slot, std::move(store), HistoryOf(view),
                                          /*takes_over=*/copy != nullptr));
    copy = nullptr;
  } else if (becomes_copy && copy == nullptr) {
    std::shared_ptr<ParameterStore> store;
    if (primary != nullptr) {
      store = primary->Retire(reason);
    } else if (roles.replica_is_complete()) {
      if (!is_new_generation) return DoesNotHave(view, "complete replica of", slot);
      ASSIGN_OR_RETURN(store, LoadStore(slot, view));
    } else {
      ASSIGN_OR_RETURN(store, ParameterStore::Create(*options_.config, slot));
    }
    // The state of a primary that has lost its role is not complete: no other process may have its
    // last changes.
    copy = std::make_shared<SlotReplica>(options_.config, slot, std::move(store),
                                         roles.replica_is_complete());
    primary = nullptr;
  } else {
    if (!becomes_primary && primary != nullptr) {
      primary->Retire(reason);
      primary = nullptr;
    }
    if (!becomes_copy && copy != nullptr) {
      copy->Retire();
      copy = nullptr;
    }
  }

  if (copy != nullptr) copy->Adopt(view);
  if (primary != nullptr) primary->Adopt(view);
  absl::MutexLock lock(&mutex_);
  const auto keep = [slot](auto& map, auto role) {
    if (role == nullptr) {
      map.erase(slot);
    } else {
      map[slot] = std::move(role);
    }
  };
  keep(primaries_, std::move(primary));
  keep(copies_, std::move(copy));
  return absl::OkStatus();
}

absl::Status SlotHost::DoesNotHave(const View& view, absl::string_view role, int slot) const {
  return absl::InternalError(absl::StrCat("view ", view.number(), " makes ps ",
                                          options_.self.process(), " ", role, " slot ", slot,
                                          ", whose state it does not have"));
}

absl::StatusOr<std::shared_ptr<ParameterStore>> SlotHost::LoadStore(int slot,
                                                                    const View& view) const {
  return MakeInitialState(*options_.config, slot, options_.storage, view.checkpoint());
}

void SlotHost::Drop(int slot, const absl::Status& reason) {
  std::shared_ptr<SlotPrimary> primary;
  {
    absl::MutexLock lock(&mutex_);
    unloaded_since_.erase(slot);
    unreadable_.Clear();
    if (const auto found = primaries_.find(slot); found != primaries_.end()) {
      primary = std::move(found->second);
      primaries_.erase(found);
    }
    if (const auto found = copies_.find(slot); found != copies_.end()) {
      found->second->Retire();
      copies_.erase(found);
    }
  }
  if (primary != nullptr) primary->Retire(reason);
}

void SlotHost::Fail(const absl::Status& failure) {
  spdlog::error("{}", std::string(failure.message()));
  absl::MutexLock lock(&mutex_);
  failure_.Update(failure);
}

void SlotHost::End(absl::Time deadline) {
  absl::MutexLock adopting(&adopt_mutex_);
  has_ended_ = true;
  for (const auto& primary : Primaries()) primary->FinishCheckpoint(deadline);
}

std::shared_ptr<Shard> SlotHost::Primary(int slot) const {
  absl::MutexLock lock(&mutex_);
  const auto found = primaries_.find(slot);
  if (found == primaries_.end()) return nullptr;
  // A call that comes late must find what the shard uses, such as its Quorum.
  return std::shared_ptr<Shard>(found->second, found->second->shard().get());
}

std::shared_ptr<SlotReplica> SlotHost::Copy(int slot) const {
  absl::MutexLock lock(&mutex_);
  const auto found = copies_.find(slot);
  return found == copies_.end() ? nullptr : found->second;
}

View SlotHost::view() const {
  absl::MutexLock lock(&mutex_);
  return view_;
}

std::vector<std::shared_ptr<SlotPrimary>> SlotHost::Primaries() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<SlotPrimary>> primaries;
  for (const auto& [slot, primary] : primaries_) primaries.push_back(primary);
  return primaries;
}

void SlotHost::Report(const ProcessId& decider, const AgreementReport& report,
                      AgreementDecider::Answer answer) {
  if (decider.process() == options_.self.process()) {
    TakeReport(report, std::move(answer));
  } else {
    options_.agreements->Report(decider, report, std::move(answer));
  }
}

void SlotHost::TakeReport(const AgreementReport& report, AgreementDecider::Answer answer) const {
  std::shared_ptr<SlotPrimary> primary;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = primaries_.find(0); found != primaries_.end()) primary = found->second;
  }
  if (primary != nullptr) {
    primary->TakeReport(report, std::move(answer));
  } else {
    answer(absl::UnavailableError(
        absl::StrCat("ps ", options_.self.process(), " is not primary of slot 0; try again")));
  }
}

absl::StatusOr<int> SlotHost::PrimaryProcess(uint64_t view, uint32_t slot) const {
  absl::MutexLock lock(&mutex_);
  if (view != view_.number()) {
    return absl::UnavailableError(absl::StrCat("ps ", options_.self.process(), " follows view ",
                                               view_.number(), ", and not view ", view,
                                               "; try again"));
  }
  if (!options_.has_views) return static_cast<int>(slot);
  const bool has_primary =
      slot < static_cast<uint32_t>(view_.slot_size()) && view_.slot(slot).has_primary();
  return has_primary ? static_cast<int>(view_.slot(slot).primary().process()) : -1;
}

ProcessState SlotHost::State() const {
  ProcessState state;
  state.set_ps(options_.self.process());
  state.set_incarnation(options_.self.incarnation());
  state.set_address(options_.self.address());
  state.set_config_fingerprint(options_.config->run_fingerprint());
  {
    absl::MutexLock lock(&mutex_);
    // A primary that has yet to read its slot's state follows no view: nobody counts as cut off
    // from it.
    const auto lacks_state = [this](const auto& unloaded) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return unloaded.first < view_.slot_size() &&
             IsSame(view_.slot(unloaded.first).primary(), options_.self);
    };
    if (absl::c_none_of(unloaded_since_, lacks_state)) state.set_view(view_.number());
    state.set_failure(Printable(failure_.message()));
    if (!unreadable_.checkpoint().empty()) *state.mutable_unreadable() = unreadable_;
  }
  for (const auto& primary : Primaries()) {
    primary->Describe(&state);
    const Shard& shard = *primary->shard();
    if (shard.has_failed() && state.failure().empty()) {
      state.set_failure(Printable(shard.failure().message()));
    }
  }
  return state;
}

absl::StatusOr<ShardStats> SlotHost::Stats(int slot) const {
  std::shared_ptr<SlotPrimary> primary;
  View now;
  {
    absl::MutexLock lock(&mutex_);
    now = view_;
    const auto found = primaries_.find(slot);
    if (found != primaries_.end()) primary = found->second;
  }
  if (primary == nullptr) {
    return absl::UnavailableError(absl::StrCat("ps ", options_.self.process(),
                                               " is not primary of slot ", slot, " in view ",
                                               now.number()));
  }
  ShardStats stats = primary->shard()->Stats();
  if (options_.config->proto().has_recovery()) {
    stats.mutable_recovery()->set_view(now.number());
    stats.mutable_recovery()->set_generation(now.generation());
    *stats.mutable_recovery()->mutable_event() = now.event();
    stats.mutable_recovery()->set_events(now.events());
    primary->FillStats(stats.mutable_recovery());
  }
  return stats;
}

void SlotHost::Tick() {
  LoadAgain();
  for (const auto& primary : Primaries()) primary->Tick();
}

bool SlotHost::Work() {
  bool worked = false;
  for (const auto& primary : Primaries()) worked |= primary->Work();
  return worked;
}

}  // namespace evenshard
