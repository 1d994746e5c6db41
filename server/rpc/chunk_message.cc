#include "server/rpc/chunk_message.h"

#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "common/wire/message_slices.h"

namespace evenshard {
namespace {

// The header of a chunk and its current parameters, in memory that gRPC may send from.
struct Parts {
  EncodedHeader header;
  grpc::Slice data;
};

// Takes the current parameters of a chunk. `encode` makes the header. If `borrow`, FLOAT32
// parameters are not copied (see UpdatePolicy::RepliesMayBorrow).
template <typename Encode>
Parts TakeCurrent(Shard& shard, StoredChunk& chunk, ParameterHeader header, bool borrow,
                  Encode encode) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  const absl::Span<const float> parameters = chunk.parameters();
  const auto encoding = static_cast<Encoding>(header.encoding);
  const size_t bytes = EncodedBytes(encoding, parameters.size());
  header.chunk = chunk.info().id;
  header.version = chunk.version();
  return {.header = encode(header, bytes),
          .data = borrow && encoding == FLOAT32
                      ? OwnedSlice(reinterpret_cast<const char*>(parameters.data()), bytes,
                                   shard.shared_store())
                      : EncodedSlice(encoding, parameters)};
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
  const auto listed = [](const ParameterHeader& header, size_t bytes) {
    return EncodeListed(header, bytes);
  };
  std::vector<grpc::Slice> slices;
  for (const PendingReply& reply : replies) {
    StoredChunk& chunk = shard->chunk(reply.chunk);
    shard->CountReply(session, EncodedBytes(encoding, chunk.info().size));
    ParameterHeader header{
        .iteration = reply.iteration, .chunk = reply.chunk, .view = shard->view()};
    if (reply.written_version.has_value()) {
      header.version = *reply.written_version;
      const EncodedHeader encoded = EncodeListed(header, /*data_bytes=*/0);
      slices.emplace_back(encoded.data(), encoded.size());
      continue;
    }
    header.encoding = encoding;
    const Parts parts = TakeCurrent(*shard, chunk, header, shard->RepliesMayBorrow(), listed);
    slices.emplace_back(parts.header.data(), parts.header.size());
    slices.push_back(parts.data);
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
  grpc::Slice slices[] = {
      grpc::Slice(header.data(), header.size()),
      taken.owner != nullptr && encoding == FLOAT32
          ? OwnedSlice(reinterpret_cast<const char*>(taken.parameters.data()), bytes, taken.owner)
          : EncodedSlice(encoding, taken.parameters),
  };
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer PullMessage(Shard* shard, StoredChunk& chunk, Encoding encoding) {
  shard->CountReply(/*session=*/nullptr, EncodedBytes(encoding, chunk.info().size));
  const auto alone = [](const ParameterHeader& header, size_t bytes) {
    return EncodeHeader(header, bytes);
  };
  const Parts parts = TakeCurrent(*shard, chunk, {.encoding = encoding}, /*borrow=*/false, alone);
  const grpc::Slice slices[] = {grpc::Slice(parts.header.data(), parts.header.size()), parts.data};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace evenshard
