#include "server/chunk_message.h"

#include "common/chunk_codec.h"

namespace ps {

grpc::ByteBuffer ParameterChunkMessage(StoredChunk& chunk, uint64_t iteration, ChunkData data) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  const absl::Span<const float> parameters = chunk.parameters();
  const size_t bytes = parameters.size() * sizeof(float);
  const EncodedHeader header = EncodeHeader(
      ParameterHeader{.iteration = iteration, .chunk = chunk.info().id, .version = chunk.version()},
      bytes);
  grpc::Slice slices[] = {
      grpc::Slice(header.data(), header.size()),
      data == ChunkData::kBorrow
          ? grpc::Slice(const_cast<float*>(parameters.data()), bytes, [](void*) {})
          : grpc::Slice(parameters.data(), bytes),
  };
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace ps
