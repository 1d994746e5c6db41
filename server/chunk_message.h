#ifndef PS_SERVER_CHUNK_MESSAGE_H_
#define PS_SERVER_CHUNK_MESSAGE_H_

#include <cstdint>

#include "grpcpp/support/byte_buffer.h"
#include "proto/encoding.pb.h"
#include "server/shard.h"

namespace ps {

enum class ChunkData {
  kBorrow,  // The message refers to the parameters' memory (see UpdatePolicy::RepliesMayBorrow).
  kCopy,    // The message owns a copy of the parameters.
};

// Returns a ParameterChunk message with the current parameters of `chunk`. Only FLOAT32 can be
// borrowed; parameters in any other encoding are always copied.
grpc::ByteBuffer ParameterChunkMessage(StoredChunk& chunk, uint64_t iteration, Encoding encoding,
                                       ChunkData data);

// Returns a ParameterChunk message without data, which tells a worker that the parameters of
// `chunk` have been written to the memory that it shares with the shard.
grpc::ByteBuffer ChunkWrittenMessage(uint32_t chunk, uint64_t iteration, uint64_t version);

}  // namespace ps

#endif  // PS_SERVER_CHUNK_MESSAGE_H_
