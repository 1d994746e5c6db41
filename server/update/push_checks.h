#ifndef EVENSHARD_SERVER_UPDATE_PUSH_CHECKS_H_
#define EVENSHARD_SERVER_UPDATE_PUSH_CHECKS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/hyperparameters.h"
#include "server/session/worker_session.h"
#include "server/store/parameter_store.h"
#include "server/update/gradient.h"
#include "server/update/update_policy.h"

namespace evenshard {

// The update policies' checks of a push, and how they count it.

// Returns the refusal of a push of an iteration that the chunk cannot be at. `allowed` completes
// "the shard expects".
absl::Status WrongIteration(const StoredChunk& chunk, const GradientHeader& header,
                            const std::string& allowed);

// Errors: INVALID_ARGUMENT if the gradient was computed from a version that does not exist.
absl::Status CheckVersion(const StoredChunk& chunk, const GradientHeader& header)
    ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

// What all pushes of an exchange must have in common. Guarded by the chunk's lock.
struct PushedKind {
  std::optional<uint32_t> first = {};       // the rank of the first push
  std::optional<Assignment> assigned = {};  // what it says; with the steps of worker 0's
  std::optional<uint32_t> rated_by = {};    // the rank of the first gradient
  Hyperparameters numbers = {};             // what came with it
};
// Notes of what kind a push is. Errors: ABORTED, which fails the run, if an earlier one was of
// another: only one assigns values, or they bring other hyperparameters.
absl::Status TakeKind(const StoredChunk& chunk, const GradientHeader& header, PushedKind* kind)
    ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
// Returns the error of an exchange that assigns values which nobody has given.
absl::Status NothingAssigned(const StoredChunk& chunk) ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

// Whether a push that carries this view may count in `view`.
bool IsOfView(const PolicyView& view, const GradientHeader& header);
// Returns whether a push is taken; otherwise it is dropped, since its worker pushes again. Errors:
// CANCELLED if `view` is null; UNAVAILABLE for a push of a newer view; FAILED_PRECONDITION if the
// session's rank has passed on.
// REQUIRES: the lock of the chunk is held until the push has been counted; see WorkerSession.
absl::StatusOr<bool> IsTaken(const PolicyView* view, const WorkerSession& session,
                             const GradientHeader& header);

PushOutcome OutcomeOf(const GradientHeader& header);

// Counts a push that was taken. The chunk's lock ensures that it is counted before its reply is
// sent and before a successor of the worker learns where to start.
void CountPush(PushOutcome outcome, const StoredChunk& chunk, const Gradient& gradient,
               WorkerSession& session, ShardCounters* counters)
    ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_PUSH_CHECKS_H_
