#ifndef PS_COMMON_NET_PULL_H_
#define PS_COMMON_NET_PULL_H_

#include <functional>

#include "absl/status/status.h"
#include "common/model/plan.h"
#include "proto/parameter_server.grpc.pb.h"

namespace ps {

// Receives all chunks of a shard, without a push, as the float32 masters. Calls `take` once for
// each, with the chunk's place in the plan and a message whose data has the chunk's size; an error
// of `take` ends the pull and is returned. Blocks until done or until the deadline of `context`,
// which is the call's.
//
// Errors: the shard's own (UNAVAILABLE, FAILED_PRECONDITION for another plan);
// DEADLINE_EXCEEDED; DATA_LOSS for a chunk that is not the shard's, comes twice or not at
// all, or has a wrong encoding or size.
absl::Status PullShard(
    ParameterServer::StubInterface* stub, grpc::ClientContext* context, const Plan& plan, int shard,
    const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take);

}  // namespace ps

#endif  // PS_COMMON_NET_PULL_H_
