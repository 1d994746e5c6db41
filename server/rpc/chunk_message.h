#ifndef EVENSHARD_SERVER_RPC_CHUNK_MESSAGE_H_
#define EVENSHARD_SERVER_RPC_CHUNK_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "proto/encoding.pb.h"
#include "server/session/worker_session.h"
#include "server/shard/shard.h"

namespace evenshard {

// The answer to a push, which waits to be sent.
struct PendingReply {
  uint32_t chunk = 0;
  uint64_t iteration = 0;
  bool dropped = false;
  // The version that the worker has, if it is known.
  std::optional<uint64_t> base_version = std::nullopt;
  // The version of the parameters that were written to the worker's memory, if it shares memory.
  std::optional<uint64_t> written_version = std::nullopt;
};

// Returns how much data a reply brings.
int64_t DataBytes(Shard* shard, const PendingReply& reply);

// Returns the ParameterChunks message of replies to `session`'s worker and counts them. Leaves out
// those that must be made later (UpdatePolicy::MayReply), and adds them to `deferred`. The message
// has the current parameters in the encoding of the exchange: FLOAT32 ones are borrowed from the
// store if UpdatePolicy::RepliesMayBorrow, others are a copy. It has no data of parameters that
// have been written to the memory that the worker shares, or that the worker has.
grpc::ByteBuffer ReplyMessage(Shard* shard, WorkerSession* session,
                              const std::vector<PendingReply>& replies,
                              std::vector<PendingReply>& deferred);

// Returns the ParameterChunk message of a Pull, with a copy of an array of the chunk's state as it
// is now, and counts it. It has no data if the chunk has no such array.
grpc::ByteBuffer PullMessage(Shard* shard, StoredChunk& chunk, int array, Encoding encoding);

// Returns such a message for a Snapshot of exchange k, with the parameters. Parameters with an
// owner are borrowed where they need not be encoded, others are copied.
grpc::ByteBuffer SnapshotMessage(Shard* shard, const Snapshots::Taken& taken, uint64_t k,
                                 Encoding encoding);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_CHUNK_MESSAGE_H_
