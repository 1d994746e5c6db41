#include "server/chunk_message.h"

#include "common/chunk_codec.h"
#include "common/encoded_slice.h"

namespace ps {

grpc::ByteBuffer ParameterChunkMessage(StoredChunk& chunk, uint64_t iteration, Encoding encoding,
                                       ChunkData data) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  const absl::Span<const float> parameters = chunk.parameters();
  const size_t bytes = EncodedBytes(encoding, parameters.size());
  const EncodedHeader header = EncodeHeader(ParameterHeader{.iteration = iteration,
                                                            .chunk = chunk.info().id,
                                                            .version = chunk.version(),
                                                            .encoding = encoding},
                                            bytes);
  grpc::Slice slices[] = {
      grpc::Slice(header.data(), header.size()),
      data == ChunkData::kBorrow && encoding == FLOAT32
          ? grpc::Slice(const_cast<float*>(parameters.data()), bytes, [](void*) {})
          : EncodedSlice(encoding, parameters),
  };
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer ChunkWrittenMessage(uint32_t chunk, uint64_t iteration, uint64_t version) {
  const EncodedHeader header =
      EncodeHeader(ParameterHeader{.iteration = iteration, .chunk = chunk, .version = version},
                   /*data_bytes=*/0);
  const grpc::Slice slice(header.data(), header.size());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace ps
