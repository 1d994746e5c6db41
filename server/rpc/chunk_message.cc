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

grpc::ByteBuffer ReplyMessage(Shard* shard, WorkerSession* session,
                              const std::vector<PendingReply>& replies,
                              std::vector<PendingReply>& deferred) {
  std::vector<grpc::Slice> slices;
  for (const PendingReply& reply : replies) {
    StoredChunk& chunk = shard->chunk(reply.chunk);
    absl::ReaderMutexLock lock(&chunk.mutex);
    if (!shard->MayReply(reply.chunk)) {
      deferred.push_back(reply);
      continue;
    }
    const ParameterHeader header = HeaderOf(*shard, chunk, reply);
    const auto encoding = static_cast<Encoding>(header.encoding);
    const bool is_new = header.has_data() && header.version != reply.base_version;
    const size_t bytes = is_new ? EncodedBytes(encoding, chunk.info().size) : 0;
    shard->CountReply(session, bytes);
    const bool is_sent = is_new && !reply.written_version.has_value();
    const EncodedHeader encoded = EncodeListed(header, is_sent ? bytes : 0);
    slices.emplace_back(encoded.data(), encoded.size());
    if (is_sent || header.unchanged) chunk.sent().Note(session->rank());
    if (!is_sent) continue;
    if (header.is_difference) {
      slices.emplace_back(chunk.EncodedUpdate().data(), bytes);
      continue;
    }
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
                                                            .version = taken.clock.version,
                                                            .encoding = encoding,
                                                            .assignments = taken.clock.assignments},
                                            bytes);
  const grpc::Slice slices[] = {grpc::Slice(header.data(), header.size()),
                                DataSlice(taken.parameters, encoding, taken.owner)};
  return grpc::ByteBuffer(slices, 2);
}

std::optional<grpc::ByteBuffer> PullMessage(Shard* shard, StoredChunk& chunk, int array,
                                            Encoding encoding, std::optional<uint32_t> worker) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  if (worker.has_value() && !shard->IsConfirmed(chunk.info().id)) return std::nullopt;
  if (array == 0 && worker.has_value()) chunk.sent().Note(*worker);
  const ChunkClock& clock = chunk.clock();
  const absl::Span<const float> values =
      array < chunk.arrays() ? chunk.array(array) : absl::Span<const float>();
  const size_t bytes = EncodedBytes(encoding, values.size());
  shard->CountReply(/*session=*/nullptr, bytes);
  const EncodedHeader header =
      EncodeHeader(ParameterHeader{.iteration = clock.iteration,
                                   .chunk = chunk.info().id,
                                   .version = clock.version,
                                   .encoding = encoding,
                                   .assignments = clock.assignments,
                                   .recent_assignments = clock.recent_assignments,
                                   .steps = clock.steps},
                   bytes);
  const grpc::Slice slices[] = {grpc::Slice(header.data(), header.size()),
                                EncodedSlice(encoding, values)};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace evenshard
