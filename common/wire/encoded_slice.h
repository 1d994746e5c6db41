#ifndef PS_COMMON_WIRE_ENCODED_SLICE_H_
#define PS_COMMON_WIRE_ENCODED_SLICE_H_

#include "absl/types/span.h"
#include "common/wire/encoding.h"
#include "grpcpp/support/slice.h"

namespace ps {

// Returns the encoded `values` in a slice of its own, ready for gRPC to send.
inline grpc::Slice EncodedSlice(Encoding encoding, absl::Span<const float> values) {
  grpc::Slice slice(static_cast<size_t>(EncodedBytes(encoding, values.size())));
  // Writing is safe because nobody else refers to the slice yet.
  char* const bytes = reinterpret_cast<char*>(const_cast<uint8_t*>(slice.begin()));
  Encode(encoding, values, bytes);
  return slice;
}

}  // namespace ps

#endif  // PS_COMMON_WIRE_ENCODED_SLICE_H_
