#ifndef EVENSHARD_SERVER_RPC_PEERS_REPLICA_MESSAGE_H_
#define EVENSHARD_SERVER_RPC_PEERS_REPLICA_MESSAGE_H_

#include "absl/status/statusor.h"
#include "common/wire/chunk_codec.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/recovery/replica.h"

namespace evenshard {

// Returns the ReplicaChunk message, which borrows the data and keeps its owner.
grpc::ByteBuffer EncodeReplica(const ReplicaMessage& message);

// Decodes a ReplicaChunk message. The result's data points into `message`, which must outlive it.
// Errors: INVALID_ARGUMENT if it is malformed, or if `data` is not its last field.
absl::StatusOr<ReplicaMessage> DecodeReplica(const Segments& message);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PEERS_REPLICA_MESSAGE_H_
