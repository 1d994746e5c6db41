#ifndef PS_SERVER_CHUNK_MESSAGE_H_
#define PS_SERVER_CHUNK_MESSAGE_H_

#include <cstdint>

#include "grpcpp/support/byte_buffer.h"
#include "proto/encoding.pb.h"
#include "server/shard.h"

namespace ps {

enum class ChunkData {
  kBorrow,  // the message refers to the parameters' memory (see UpdatePolicy::RepliesMayBorrow)
  kCopy,
};

// A ParameterChunk message with the present parameters of `chunk`. Only FLOAT32 can borrow:
// in another encoding they are always a copy.
grpc::ByteBuffer ParameterChunkMessage(StoredChunk& chunk, uint64_t iteration, Encoding encoding,
                                       ChunkData data);

// A ParameterChunk message that says of parameters that they are in the worker's memory.
grpc::ByteBuffer ChunkWrittenMessage(uint32_t chunk, uint64_t iteration, uint64_t version);

}  // namespace ps

#endif  // PS_SERVER_CHUNK_MESSAGE_H_
