#include "server/chunk_message.h"

#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "common/wire/message_slices.h"

namespace ps {
namespace {

// Returns a message with the current parameters of a chunk. If `borrow`, a FLOAT32 message refers
// to the memory of the parameters (see UpdatePolicy::RepliesMayBorrow).
grpc::ByteBuffer DataMessage(Shard& shard, StoredChunk& chunk, uint64_t iteration, uint64_t view,
                             Encoding encoding, bool borrow) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  const absl::Span<const float> parameters = chunk.parameters();
  const size_t bytes = EncodedBytes(encoding, parameters.size());
  const EncodedHeader header = EncodeHeader(ParameterHeader{.iteration = iteration,
                                                            .chunk = chunk.info().id,
                                                            .version = chunk.version(),
                                                            .encoding = encoding,
                                                            .view = view},
                                            bytes);
  grpc::Slice slices[] = {
      grpc::Slice(header.data(), header.size()),
      borrow && encoding == FLOAT32 ? OwnedSlice(reinterpret_cast<const char*>(parameters.data()),
                                                 bytes, shard.shared_store())
                                    : EncodedSlice(encoding, parameters),
  };
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace

grpc::ByteBuffer ReplyMessage(Shard* shard, WorkerSession* session, const PendingReply& reply) {
  StoredChunk& chunk = shard->chunk(reply.chunk);
  const Encoding encoding = shard->config().proto().exchange().parameter_encoding();
  shard->CountReply(session, EncodedBytes(encoding, chunk.info().size));
  if (!reply.written_version.has_value()) {
    return DataMessage(*shard, chunk, reply.iteration, shard->view(), encoding,
                       shard->RepliesMayBorrow());
  }
  const EncodedHeader header = EncodeHeader(ParameterHeader{.iteration = reply.iteration,
                                                            .chunk = reply.chunk,
                                                            .version = *reply.written_version,
                                                            .view = shard->view()},
                                            /*data_bytes=*/0);
  const grpc::Slice slice(header.data(), header.size());
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer PullMessage(Shard* shard, StoredChunk& chunk, Encoding encoding) {
  shard->CountReply(/*session=*/nullptr, EncodedBytes(encoding, chunk.info().size));
  return DataMessage(*shard, chunk, /*iteration=*/0, /*view=*/0, encoding, /*borrow=*/false);
}

}  // namespace ps
