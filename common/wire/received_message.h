#ifndef PS_COMMON_WIRE_RECEIVED_MESSAGE_H_
#define PS_COMMON_WIRE_RECEIVED_MESSAGE_H_

#include <memory>
#include <vector>

#include "common/wire/chunk_codec.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace ps {

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

}  // namespace ps

#endif  // PS_COMMON_WIRE_RECEIVED_MESSAGE_H_
