#ifndef EVENSHARD_SERVER_RPC_PENDING_REPLY_H_
#define EVENSHARD_SERVER_RPC_PENDING_REPLY_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/wire/chunk_codec.h"
#include "server/shard/shard.h"

namespace evenshard {

// The answer to a push, which waits to be sent.
struct PendingReply {
  uint32_t chunk = 0;
  uint64_t iteration = 0;
  bool dropped = false;
  // The version that the worker has, if it is known and VersionsTell.
  std::optional<uint64_t> base_version = std::nullopt;
  // The version of the parameters that were written to the worker's memory, if it shares memory.
  std::optional<uint64_t> written_version = std::nullopt;
};

// Whether a chunk has the same parameters wherever it has the same version. Under ASYNC a primary
// that was lost may have had updates that the next one has not, and so other ones of that number.
bool VersionsTell(const Shard& shard);

// Returns how much data a reply brings, unless it has to bring parameters where the others bring
// what an update has changed.
int64_t DataBytes(Shard* shard, const PendingReply& reply);

// Returns what a reply says of a chunk as it is now, and in which form its data is: that of
// chunk.EncodedUpdate() if the header is of a difference, and otherwise the parameters.
ParameterHeader HeaderOf(const Shard& shard, const StoredChunk& chunk, const PendingReply& reply)
    ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PENDING_REPLY_H_
