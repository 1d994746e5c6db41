#ifndef EVENSHARD_SERVER_SHARD_PUSH_FORMAT_H_
#define EVENSHARD_SERVER_SHARD_PUSH_FORMAT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"
#include "server/session/worker_session.h"
#include "server/store/parameter_store.h"
#include "server/update/gradient.h"

namespace evenshard {

// What a shard checks of a push by itself, before the update policy gets it. All errors are
// INVALID_ARGUMENT.

// Returns the place of a pushed chunk in the store. Errors: another worker's push, and a chunk that
// the shard does not own.
absl::StatusOr<int> IndexOfPush(const WorkerSession& session, const GradientHeader& header,
                                const ParameterStore& store, int shard);

// Errors: another encoding than the run's, values that this worker cannot assign, a learning rate
// that is none, and a wrong number of bytes.
absl::Status CheckFormat(const PlannedConfig& config, const Gradient& gradient, const Chunk& chunk);

// Errors: a value that is not finite. REQUIRES: the chunk's lock is not held.
absl::Status CheckFinite(const PlannedConfig& config, const Gradient& gradient,
                         StoredChunk& stored);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SHARD_PUSH_FORMAT_H_
