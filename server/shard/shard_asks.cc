// What workers ask a shard, and tell it, beside the exchange.

#include <optional>
#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "server/shard/shard.h"

namespace evenshard {
namespace {

constexpr absl::string_view kWorkerState = "what a worker keeps by itself";
constexpr absl::string_view kMean = "a mean";

// For so long a process that has taken slot 0 over waits for what workers that have finished tell
// it of what its predecessor knew (MeanCalls::Retell, Exchange::RetellKept).
constexpr absl::Duration kToldWithin = absl::Seconds(10);

}  // namespace

absl::Status Shard::Report(const ReportRequest& request) {
  return membership_.Report(request.worker(), request.incarnation(), request.usage());
}

absl::Status Shard::CheckGeneration(uint64_t generation) const {
  if (view_ == 0 || generation == generation_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the request is of generation ", generation,
                                             " of the run, and slot ", index_, " of generation ",
                                             generation_.load(), "; try again"));
}

absl::Status Shard::CheckAsks(uint32_t worker, uint64_t incarnation, absl::string_view what) const {
  RETURN_IF_ERROR(failure());
  if (config_.proto().update().policy() != Update::SYNC) {
    return absl::FailedPreconditionError(absl::StrCat(
        "under ", Update::Policy_Name(config_.proto().update().policy()),
        config_.has_quorum() ? " not all workers take part in an iteration, as they must for "
                             : " the workers have no iteration in common for ",
        what, "; allowed: under SYNC"));
  }
  const absl::Status holds = membership_.CheckHolds(worker, incarnation);
  return holds.ok() || view_ == 0 ? holds : absl::UnavailableError(holds.message());
}

absl::StatusOr<MeanResponse> Shard::Mean(const MeanRequest& request) {
  RETURN_IF_ERROR(CheckGeneration(request.generation()));
  RETURN_IF_ERROR(request.is_mean() ? CheckGives(request.worker(), request.incarnation(), kMean)
                                    : CheckAsks(request.worker(), request.incarnation(), kMean));
  if (request.is_past()) {
    MeanResponse response;
    response.set_waits(means_.WaitsFor(request.worker(), request.iteration()));
    return response;
  }
  const std::set<uint32_t> have_finished = TellNoMore();
  absl::MutexLock lock(&view_mutex_);
  return means_.Ask(request, worker_sets_->WaitedRanks(request.iteration()), have_finished);
}

std::set<uint32_t> Shard::TellNoMore() const {
  const bool may_be_told = view_ > 0 && clock_->Now() - start_time_ < kToldWithin;
  return may_be_told ? std::set<uint32_t>() : HaveFinished();
}

std::set<uint32_t> Shard::HaveFinished() const {
  const std::vector<uint32_t> left = membership_.HaveLeft();
  std::set<uint32_t> have_finished(left.begin(), left.end());
  absl::MutexLock lock(&view_mutex_);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].has_finished) have_finished.insert(rank);
  }
  return have_finished;
}

absl::Status Shard::KeepState(const KeepStateRequest& request) {
  RETURN_IF_ERROR(CheckGeneration(request.generation()));
  RETURN_IF_ERROR(CheckGives(request.worker(), request.incarnation(), "register_state()"));
  return Keep(request.worker(), request.state());
}

absl::Status Shard::Keep(uint32_t worker, const RegisteredState& state) {
  if (index_ != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("registered state was given to slot ", index_, ", allowed: slot 0"));
  }
  return store_->registered_states().Keep(worker, state.iteration(),
                                          {state.value().begin(), state.value().end()});
}

absl::StatusOr<TakeStateResponse> Shard::TakeState(const TakeStateRequest& request) {
  RETURN_IF_ERROR(CheckAsks(request.worker(), request.incarnation(), "register_state()"));
  std::vector<uint32_t> may_give;
  {
    absl::MutexLock lock(&view_mutex_);
    may_give = worker_sets_->WaitedRanks(request.iteration());
  }
  // One that waits for a mean waits for this worker, and one that has finished has given what it
  // had.
  const std::set<uint32_t> waiting = means_.Waiting(request.iteration());
  const std::set<uint32_t> have_finished = TellNoMore();
  std::erase_if(may_give, [&](uint32_t rank) {
    return waiting.contains(rank) || have_finished.contains(rank);
  });
  const absl::StatusOr<std::optional<StatesByName>> taken =
      store_->registered_states().Take(request.worker(), request.iteration(), may_give);
  if (!taken.ok() && view_ == 0) {
    // Without a coordinator the run cannot go back.
    return absl::FailedPreconditionError(
        absl::StrCat(taken.status().message(),
                     "; allowed: to start the run again with --resume from a checkpoint"));
  }
  ASSIGN_OR_RETURN(const std::optional<StatesByName> state, taken);
  TakeStateResponse response;
  response.set_complete(state.has_value());
  response.mutable_state()->set_iteration(request.iteration());
  for (const auto& [name, text] : state.value_or(StatesByName())) {
    (*response.mutable_state()->mutable_value())[name] = text;
  }
  return response;
}

absl::StatusOr<AskWorkerStateResponse> Shard::AskWorkerState(const AskWorkerStateRequest& request) {
  RETURN_IF_ERROR(CheckAsks(request.worker(), request.incarnation(), kWorkerState));
  if (request.is_received()) {
    state_requests_.Received(request.worker());
    return AskWorkerStateResponse();
  }
  const std::set<uint32_t> have_finished = HaveFinished();
  std::vector<uint32_t> ranks;
  {
    absl::MutexLock lock(&view_mutex_);
    ranks = worker_sets_->WaitedRanks(request.iteration());
  }
  if (const auto sender = state_requests_.SenderOf(request.ticket());
      sender.has_value() && !CheckGives(sender->worker, sender->incarnation, kWorkerState).ok()) {
    state_requests_.Lose(request.ticket());
  }
  using Progress = WorkerStateRequests::Progress;
  const absl::StatusOr<Progress> progress = state_requests_.Ask(
      request.worker(), request.ticket(), request.iteration(), ranks, have_finished);
  if (absl::IsUnavailable(progress.status()) && view_ == 0) {
    // Without a coordinator the run cannot go back.
    return absl::FailedPreconditionError(
        absl::StrCat(progress.status().message(), "; allowed: to start the run again"));
  }
  RETURN_IF_ERROR(progress.status());
  if (*progress == Progress::kPassed) {
    return absl::OutOfRangeError(
        absl::StrCat("the other workers have completed exchange ", request.iteration()));
  }
  AskWorkerStateResponse response;
  response.set_has_sender(*progress == Progress::kSender);
  response.set_is_broken(*progress == Progress::kBroken);
  return response;
}

absl::StatusOr<OfferWorkerStateResponse> Shard::OfferWorkerState(
    const OfferWorkerStateRequest& request) {
  RETURN_IF_ERROR(CheckGeneration(request.generation()));
  RETURN_IF_ERROR(CheckGives(request.worker(), request.incarnation(), kWorkerState));
  OfferWorkerStateResponse response;
  if (request.is_sending()) {
    response.set_is_awaited(state_requests_.IsAwaited(request.ticket()));
    return response;
  }
  if (request.ticket() != 0) {
    if (request.refusal().empty()) {
      state_requests_.Lose(request.ticket());
    } else {
      state_requests_.Refuse(request.ticket(), request.refusal());
    }
    return response;
  }
  const WorkerStateRequests::Answer answer =
      state_requests_.Offer({request.worker(), request.incarnation()}, request.iteration());
  response.set_ticket(answer.ticket);
  response.set_is_awaited(answer.is_awaited);
  return response;
}

absl::Status Shard::CheckSendsState(uint32_t worker, uint64_t incarnation) const {
  return CheckGives(worker, incarnation, kWorkerState);
}

absl::Status Shard::CheckReceivesState(uint32_t worker, uint64_t incarnation) const {
  return CheckAsks(worker, incarnation, kWorkerState);
}

absl::Status Shard::CheckGives(uint32_t worker, uint64_t incarnation,
                               absl::string_view what) const {
  const absl::Status asks = CheckAsks(worker, incarnation, what);
  if (asks.ok() || !failure().ok()) return asks;
  // One that has finished holds no rank any more, and a process that took the slot over afterwards
  // has never seen it.
  absl::MutexLock lock(&view_mutex_);
  const bool has_finished = view_ == 0 ? absl::c_linear_search(membership_.HaveLeft(), worker)
                                       : worker < ranks_.size() && incarnation != 0 &&
                                             ranks_[worker].incarnation == incarnation;
  return has_finished ? absl::OkStatus() : asks;
}

}  // namespace evenshard
