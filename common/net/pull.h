#ifndef EVENSHARD_COMMON_NET_PULL_H_
#define EVENSHARD_COMMON_NET_PULL_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "common/placement/plan/plan.h"
#include "proto/parameter_server.grpc.pb.h"

namespace evenshard {

// Receives the parameters of a shard in float32, without a push, or another array of the chunks'
// state (PullRequest.array), for a worker to go on from if it is given. Calls `take` once for each
// chunk of the shard, with the chunk of the plan and a message whose data has the right size, or is
// none as the chunk lacks the array. An error of `take` ends the pull and is returned. Blocks until
// the pull is done or the deadline of `context` has passed.
//
// Errors: those of the shard, such as UNAVAILABLE, or FAILED_PRECONDITION if it has another plan;
// DEADLINE_EXCEEDED; DATA_LOSS if a chunk belongs to another shard, comes twice or not at all, or
// has the wrong encoding or size.
absl::Status PullShard(ParameterServer::StubInterface* stub, grpc::ClientContext* context,
                       const Plan& plan, int shard,
                       const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take,
                       int array = 0, std::optional<uint32_t> worker = std::nullopt);

// Does the same with the shard's Snapshot at an iteration. Errors: also ABORTED if the shard has
// passed it, OUT_OF_RANGE if the run is over before it, RESOURCE_EXHAUSTED.
absl::Status SnapshotShard(
    ParameterServer::StubInterface* stub, grpc::ClientContext* context, const Plan& plan, int shard,
    uint64_t iteration,
    const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_PULL_H_
