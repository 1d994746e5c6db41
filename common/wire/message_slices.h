#ifndef EVENSHARD_COMMON_WIRE_MESSAGE_SLICES_H_
#define EVENSHARD_COMMON_WIRE_MESSAGE_SLICES_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace evenshard {

// Returns the encoded `values` in a slice of its own, ready for gRPC to send.
inline grpc::Slice EncodedSlice(Encoding encoding, absl::Span<const float> values) {
  grpc::Slice slice(static_cast<size_t>(EncodedBytes(encoding, values.size())));
  // Writing is safe because nobody else refers to the slice yet.
  char* const bytes = reinterpret_cast<char*>(const_cast<uint8_t*>(slice.begin()));
  Encode(encoding, values, bytes);
  return slice;
}

// Returns a slice of borrowed memory, which keeps `owner` until gRPC is done with it.
inline grpc::Slice OwnedSlice(const char* data, size_t size, std::shared_ptr<const void> owner) {
  using Owner = std::shared_ptr<const void>;
  return grpc::Slice(
      const_cast<char*>(data), size, [](void* kept) { delete static_cast<Owner*>(kept); },
      new Owner(std::move(owner)));
}

// Refers to the bytes of a received message where gRPC put them, without copying them.
class ReceivedMessage {
 public:
  // Takes the contents of `buffer`.
  explicit ReceivedMessage(grpc::ByteBuffer* buffer) {
    buffer->Dump(&slices_);  // cannot fail: nothing is compressed
    buffer->Clear();
    segments_.reserve(slices_.size());
    for (const grpc::Slice& slice : slices_) {
      segments_.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }

  const Segments& segments() const { return segments_; }

 private:
  std::vector<grpc::Slice> slices_;
  Segments segments_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_MESSAGE_SLICES_H_
