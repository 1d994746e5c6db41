#include "server/rpc/chunk_message.h"

#include <memory>
#include <utility>

#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "common/wire/message_slices.h"

namespace evenshard {
namespace {

// Returns parameters in memory that gRPC may send from: where they are, if `owner` keeps them there
// and they need not be encoded, and otherwise a copy.
grpc::Slice DataSlice(absl::Span<const float> parameters, Encoding encoding,
                      std::shared_ptr<const void> owner) {
  if (owner == nullptr || encoding != FLOAT32) return EncodedSlice(encoding, parameters);
  return OwnedSlice(reinterpret_cast<const char*>(parameters.data()),
                    parameters.size() * sizeof(float), std::move(owner));
}

}  // namespace

int64_t DataBytes(Shard* shard, const PendingReply& reply) {
  if (reply.written_version.has_value()) return 0;
  return EncodedBytes(shard->config().proto().exchange().parameter_encoding(),
                      shard->chunk(reply.chunk).info().size);
}

grpc::ByteBuffer ReplyMessage(Shard* shard, WorkerSession* session,
                              const std::vector<PendingReply>& replies) {
  const Encoding encoding = shard->config().proto().exchange().parameter_encoding();
  std::vector<grpc::Slice> slices;
  for (const PendingReply& reply : replies) {
    StoredChunk& chunk = shard->chunk(reply.chunk);
    const size_t bytes = EncodedBytes(encoding, chunk.info().size);
    shard->CountReply(session, bytes);
    ParameterHeader header{
        .iteration = reply.iteration, .chunk = reply.chunk, .view = shard->view()};
    if (reply.written_version.has_value()) {
      header.version = *reply.written_version;
      const EncodedHeader encoded = EncodeListed(header, /*data_bytes=*/0);
      slices.emplace_back(encoded.data(), encoded.size());
      continue;
    }
    header.encoding = encoding;
    absl::ReaderMutexLock lock(&chunk.mutex);
    header.version = chunk.version();
    const EncodedHeader encoded = EncodeListed(header, bytes);
    slices.emplace_back(encoded.data(), encoded.size());
    slices.push_back(DataSlice(chunk.parameters(), encoding,
                               shard->RepliesMayBorrow() ? shard->shared_store() : nullptr));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer SnapshotMessage(Shard* shard, const Snapshots::Taken& taken, uint64_t k,
                                 Encoding encoding) {
  const size_t bytes = EncodedBytes(encoding, taken.parameters.size());
  shard->CountReply(/*session=*/nullptr, bytes);
  const EncodedHeader header = EncodeHeader(ParameterHeader{.iteration = k,
                                                            .chunk = taken.info.id,
                                                            .version = taken.version,
                                                            .encoding = encoding,
                                                            .view = 0},
                                            bytes);
  const grpc::Slice slices[] = {grpc::Slice(header.data(), header.size()),
                                DataSlice(taken.parameters, encoding, taken.owner)};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer PullMessage(Shard* shard, StoredChunk& chunk, Encoding encoding) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  return SnapshotMessage(shard, {chunk.info(), chunk.version(), chunk.parameters(), nullptr},
                         /*k=*/0, encoding);
}

}  // namespace evenshard
