#include "server/update/push_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"

namespace evenshard {
namespace {

// What a worker pushes, and by which call of a script.
std::string KindText(std::optional<uint32_t> assigned) {
  if (!assigned.has_value()) return "gradients, by step()";
  return *assigned == 0
             ? "parameters, by assign()"
             : absl::StrCat("array ", *assigned, " of the optimizer's state, by load_state_dict()");
}

}  // namespace

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

absl::Status TakeKind(const StoredChunk& chunk, const GradientHeader& header, PushedKind* kind) {
  const auto disagreement = [&](uint32_t other, const std::string& of_other,
                                const std::string& of_this) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return WithKind(ErrorDetail::RUN_FAILED,
                    absl::AbortedError(absl::StrCat(
                        "workers ", other, " and ", header.worker, " disagree at iteration ",
                        chunk.clock().trained(), " (chunk ", header.chunk, "): ", of_other, " and ",
                        of_this, "; under SYNC all workers must use the same")));
  };
  if (!kind->first.has_value()) {
    kind->first = header.worker;
    if (header.assigned.has_value()) kind->assigned = {.array = *header.assigned};
  }
  const auto assigned =
      kind->assigned.has_value() ? std::optional(kind->assigned->array) : std::nullopt;
  if (assigned != header.assigned) {
    return disagreement(*kind->first, KindText(assigned), KindText(header.assigned));
  }
  if (!header.has_data()) return absl::OkStatus();
  if (kind->assigned.has_value()) kind->assigned->steps = header.steps;
  if (!kind->rated_by.has_value()) {
    kind->rated_by = header.worker;
    kind->numbers = header.hyperparameters;
  }
  if (kind->numbers == header.hyperparameters) return absl::OkStatus();
  return disagreement(*kind->rated_by, ToText(kind->numbers), ToText(header.hyperparameters));
}

absl::Status NothingAssigned(const StoredChunk& chunk) {
  return WithKind(ErrorDetail::RUN_FAILED,
                  absl::AbortedError(absl::StrCat(
                      "worker 0 was lost before it could give the ",
                      chunk.NeedsInitial() ? "initial parameters" : "values that it assigns")));
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

PushOutcome OutcomeOf(const GradientHeader& header) {
  return header.assigned.has_value() ? PushOutcome::kAssigned
         : header.skip               ? PushOutcome::kSkipped
                                     : PushOutcome::kCounted;
}

void CountPush(PushOutcome outcome, const StoredChunk& chunk, const Gradient& gradient,
               WorkerSession& session, ShardCounters* counters) {
  const uint64_t bytes = SegmentsSize(gradient.data);
  const ChunkClock& clock = chunk.clock();
  const uint64_t behind = std::min(gradient.header.iteration, clock.assignments);
  // Where the worker is when this exchange is over. Of a repeat it is known already.
  const uint64_t trained =
      outcome == PushOutcome::kRepeated
          ? 0
          : gradient.header.iteration - behind + (outcome == PushOutcome::kAssigned ? 0 : 1);
  session.CountPush(outcome, trained, bytes);
  counters->received.Add(outcome, bytes);
  if (outcome == PushOutcome::kCounted) {
    counters->CountStaleness(chunk.version() -
                             std::min(chunk.version(), gradient.header.base_version));
  }
}

}  // namespace evenshard
