#ifndef EVENSHARD_TESTS_TESTING_CHUNK_MESSAGES_H_
#define EVENSHARD_TESTS_TESTING_CHUNK_MESSAGES_H_

#include "proto/parameter_server.pb.h"

namespace evenshard {

// Return a message of Exchange with one chunk.
inline GradientChunks MessageOf(const GradientChunk& chunk) {
  GradientChunks message;
  *message.add_chunk() = chunk;
  return message;
}
inline ParameterChunks MessageOf(const ParameterChunk& chunk) {
  ParameterChunks message;
  *message.add_chunk() = chunk;
  return message;
}

// Reads the chunks of a stream's messages one by one. `Message` is GradientChunks or
// ParameterChunks.
template <typename Message>
class ChunkReader {
 public:
  // Reads the next chunk from a stream of gRPC's generated code. False: the stream has ended.
  template <typename Stream, typename Chunk>
  bool Read(Stream& stream, Chunk* chunk) {
    while (next_ == message_.chunk_size()) {
      if (!stream.Read(&message_)) return false;
      next_ = 0;
    }
    *chunk = message_.chunk(next_++);
    return true;
  }

 private:
  Message message_;
  int next_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_CHUNK_MESSAGES_H_
