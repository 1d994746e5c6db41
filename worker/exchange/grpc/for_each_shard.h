#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_FOR_EACH_SHARD_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_FOR_EACH_SHARD_H_

#include <functional>

#include "absl/status/status.h"

namespace evenshard {

// Runs `call(shard)` for every shard at the same time. Blocks until all are done. Returns all
// errors in one message, with the code of the first.
absl::Status ForEachShard(int shards, const std::function<absl::Status(int)>& call);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_FOR_EACH_SHARD_H_
