#include "server/update/push_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"

namespace evenshard {

absl::Status WrongIteration(const StoredChunk& chunk, const GradientHeader& header,
                            const std::string& allowed) {
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.info().id, " for iteration ",
                   header.iteration, "; the shard expects ", allowed));
}

absl::Status CheckVersion(const StoredChunk& chunk, const GradientHeader& header) {
  // With views, the version may have been lost with a primary before its replica had it.
  if (header.base_version <= chunk.version() || header.view > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", header.worker, " pushed chunk ", chunk.info().id, " computed from version ",
      header.base_version, "; the shard is at version ", chunk.version()));
}

bool IsOfView(const PolicyView& view, const GradientHeader& header) {
  return header.view == view.number && !view.handing_over;
}

absl::StatusOr<bool> IsTaken(const PolicyView* view, const WorkerSession& session,
                             const GradientHeader& header) {
  if (view == nullptr) return absl::CancelledError("the run has failed");
  if (header.view > view->number) {
    return absl::UnavailableError(absl::StrCat("worker ", header.worker, " follows view ",
                                               header.view, " and this shard only view ",
                                               view->number, " yet; try again"));
  }
  if (!IsOfView(*view, header)) return false;
  if (session.holds_rank()) return true;
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", header.worker, " pushed chunk ", header.chunk,
                   " after its rank had passed on: it has left, is lost or was replaced"));
}

absl::Status Disagreement(uint32_t worker, const Hyperparameters& numbers,
                          const GradientHeader& header) {
  return WithKind(
      ErrorDetail::RUN_FAILED,
      absl::AbortedError(absl::StrCat(
          "workers ", worker, " and ", header.worker, " disagree at iteration ", header.iteration,
          " (chunk ", header.chunk, "): ", ToText(numbers), " and ", ToText(header.hyperparameters),
          "; under SYNC all workers must use the same")));
}

absl::Status NoInitialParameters() {
  return WithKind(
      ErrorDetail::RUN_FAILED,
      absl::AbortedError(
          "there are no initial parameters: worker 0 was lost before it could give them"));
}

PushOutcome OutcomeOf(const GradientHeader& header) {
  return header.skip ? PushOutcome::kSkipped : PushOutcome::kCounted;
}

void CountPush(PushOutcome outcome, const StoredChunk& chunk, const Gradient& gradient,
               WorkerSession& session, ShardCounters* counters) {
  const uint64_t bytes = SegmentsSize(gradient.data);
  session.CountPush(outcome, gradient.header.iteration, bytes);
  counters->received.Add(outcome, bytes);
  if (outcome == PushOutcome::kCounted) {
    counters->CountStaleness(chunk.version() -
                             std::min(chunk.version(), gradient.header.base_version));
  }
}

}  // namespace evenshard
