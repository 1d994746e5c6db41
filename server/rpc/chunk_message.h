#ifndef EVENSHARD_SERVER_RPC_CHUNK_MESSAGE_H_
#define EVENSHARD_SERVER_RPC_CHUNK_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "proto/encoding.pb.h"
#include "server/rpc/pending_reply.h"
#include "server/session/worker_session.h"
#include "server/shard/shard.h"

namespace evenshard {

// Returns the ParameterChunks message of replies to `session`'s worker and counts them. Leaves out
// those that must be made later (UpdatePolicy::MayReply), and adds them to `deferred`. The message
// has the current parameters in the encoding of the exchange: FLOAT32 ones are borrowed from the
// store if UpdatePolicy::RepliesMayBorrow, others are a copy. To a worker that has the parameters
// before the latest update it has what that has changed, if updates are rounded. It has no data of
// parameters that have been written to the memory that the worker shares, or that the worker has.
grpc::ByteBuffer ReplyMessage(Shard* shard, WorkerSession* session,
                              const std::vector<PendingReply>& replies,
                              std::vector<PendingReply>& deferred);

// Returns the ParameterChunk message of a Pull, with a copy of an array of the chunk's state as it
// is now, and counts it. It has no data if the chunk has no such array. `worker`: the rank that the
// pull names (SentParameters). A worker gets nothing that is not confirmed (UpdatePolicy): nullopt.
std::optional<grpc::ByteBuffer> PullMessage(Shard* shard, StoredChunk& chunk, int array,
                                            Encoding encoding, std::optional<uint32_t> worker);

// Returns such a message for a Snapshot of exchange k, with the parameters. Parameters with an
// owner are borrowed where they need not be encoded, others are copied.
grpc::ByteBuffer SnapshotMessage(Shard* shard, const Snapshots::Taken& taken, uint64_t k,
                                 Encoding encoding);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_CHUNK_MESSAGE_H_
