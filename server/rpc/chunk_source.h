#ifndef EVENSHARD_SERVER_RPC_CHUNK_SOURCE_H_
#define EVENSHARD_SERVER_RPC_CHUNK_SOURCE_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "server/shard/shard.h"

namespace evenshard {

// Gives a PullStream the chunks that it sends. Used by one thread at a time.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;

  struct Next {
    std::optional<grpc::ByteBuffer> message = {};
    // If there is no message: whether the source is at its end.
    bool is_end = false;
    // If there is none yet: after how long to ask again, unless the source calls before.
    absl::Duration pause = absl::InfiniteDuration();
  };
  // Returns the next message. An error ends the RPC.
  virtual absl::StatusOr<Next> TakeNext() = 0;
};

// Returns the chunks of a Pull: all of the shard, in the order of their ids, each as it is when its
// turn comes, and for a worker confirmed. Errors: UNAVAILABLE if the process may not be primary;
// FAILED_PRECONDITION for another plan; INVALID_ARGUMENT for an encoding that does not exist.
absl::StatusOr<std::unique_ptr<ChunkSource>> PullSource(std::shared_ptr<Shard> shard,
                                                        const PullRequest& request);

// Returns the chunks of a Snapshot. `wake` is called when a retry may succeed; it must not block or
// call back. Errors: those of PullSource and of Snapshots::Open.
absl::StatusOr<std::unique_ptr<ChunkSource>> SnapshotSource(std::shared_ptr<Shard> shard,
                                                            const SnapshotRequest& request,
                                                            std::function<void()> wake);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_CHUNK_SOURCE_H_
