#ifndef PS_SERVER_CHUNK_MESSAGE_H_
#define PS_SERVER_CHUNK_MESSAGE_H_

#include <cstdint>
#include <optional>

#include "grpcpp/support/byte_buffer.h"
#include "proto/encoding.pb.h"
#include "server/shard.h"
#include "server/worker_session.h"

namespace ps {

// The answer to a push, which waits to be sent.
struct PendingReply {
  uint32_t chunk = 0;
  uint64_t iteration = 0;
  // Where memory is shared: the version of the parameters that are in the worker's memory.
  std::optional<uint64_t> written_version = std::nullopt;
};

// The ParameterChunk message of a reply to `session`'s worker: with the present parameters in the
// encoding of the exchange, borrowed where the update policy and the encoding allow it; or without
// data where they have been written. Counts it.
grpc::ByteBuffer ReplyMessage(Shard* shard, WorkerSession* session, const PendingReply& reply);

// The ParameterChunk message of a Pull: a copy of the present parameters. Counts it.
grpc::ByteBuffer PullMessage(Shard* shard, StoredChunk& chunk, Encoding encoding);

}  // namespace ps

#endif  // PS_SERVER_CHUNK_MESSAGE_H_
