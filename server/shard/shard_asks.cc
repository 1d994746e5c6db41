// What workers ask a shard, and tell it, beside the exchange.

#include <optional>
#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/shard/shard.h"

namespace evenshard {

absl::Status Shard::Report(const ReportRequest& request) {
  return membership_.Report(request.worker(), request.incarnation(), request.usage());
}

absl::Status Shard::CheckAsks(uint32_t worker, uint64_t incarnation, absl::string_view what) const {
  RETURN_IF_ERROR(failure());
  if (config_.proto().update().policy() != Update::SYNC) {
    return absl::FailedPreconditionError(absl::StrCat(
        "under ASYNC the workers have no iteration in common for ", what, "; allowed: under SYNC"));
  }
  const absl::Status holds = membership_.CheckHolds(worker, incarnation);
  return holds.ok() || view_ == 0 ? holds : absl::UnavailableError(holds.message());
}

absl::StatusOr<MeanResponse> Shard::Mean(const MeanRequest& request) {
  RETURN_IF_ERROR(CheckAsks(request.worker(), request.incarnation(), "a mean"));
  absl::MutexLock lock(&view_mutex_);
  return means_.Ask(request, worker_sets_->At(request.iteration()));
}

absl::Status Shard::KeepState(const KeepStateRequest& request) {
  RETURN_IF_ERROR(CheckAsks(request.worker(), request.incarnation(), "register_state()"));
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
    may_give = worker_sets_->At(request.iteration());
  }
  // One that waits for a mean waits for this worker, and one that has finished has given what it
  // had.
  const std::set<uint32_t> waiting = means_.Waiting(request.iteration());
  const std::vector<uint32_t> left = membership_.HaveLeft();
  std::erase_if(may_give, [&](uint32_t rank) {
    return waiting.contains(rank) || absl::c_linear_search(left, rank);
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

}  // namespace evenshard
