#ifndef PS_COMMON_CHUNK_CODEC_H_
#define PS_COMMON_CHUNK_CODEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/unaligned.h"

// The wire form of GradientChunk and ParameterChunk (proto/parameter_server.proto)
// without the generated code, which would copy the tensor bytes. Everything up to the
// first byte of `data` is encoded into a small buffer; the tensor's own memory follows.
// Decoding yields views of the received pieces. The bytes are those of generated code.

namespace ps {

// A byte string in pieces of any length, as received.
using Segments = std::vector<absl::Span<const char>>;

size_t SegmentsSize(const Segments& segments);

// The fields of GradientChunk other than `data`.
struct GradientHeader {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  uint64_t iteration = 0;
  uint32_t chunk = 0;
  uint64_t base_version = 0;
  bool skip = false;
  bool hold = false;
};

// The fields of ParameterChunk other than `data`.
struct ParameterHeader {
  uint64_t iteration = 0;
  uint32_t chunk = 0;
  uint64_t version = 0;
};

// The encoded fields and the tag and length of `data`: at most 60 bytes.
class EncodedHeader {
 public:
  const char* data() const { return bytes_.data(); }
  size_t size() const { return size_; }

 private:
  friend class HeaderWriter;
  std::array<char, 72> bytes_;
  size_t size_ = 0;
};

// To be followed by exactly `data_bytes` bytes of float32, little-endian.
EncodedHeader EncodeHeader(const GradientHeader& header, size_t data_bytes);
EncodedHeader EncodeHeader(const ParameterHeader& header, size_t data_bytes);

// What a message holds. `data` points into the message.
template <typename Header>
struct Decoded {
  Header header;
  Segments data;
};

// Accepts every message that generated code accepts, with the same result: fields in any
// order, repeated (the last one counts), unknown ones (skipped).
// Errors: INVALID_ARGUMENT saying at which byte the message is malformed.
absl::StatusOr<Decoded<GradientHeader>> DecodeGradientChunk(const Segments& message);
absl::StatusOr<Decoded<ParameterHeader>> DecodeParameterChunk(const Segments& message);

// Calls `run(first, floats, count)` for the float32 elements in `segments`, in order:
// `count` of them from element `first` on, at an address of any alignment. An element
// that straddles a border between pieces is put together and passed alone.
// REQUIRES: SegmentsSize(segments) is a multiple of 4.
template <typename Run>
void ForEachFloatRun(const Segments& segments, Run run) {
  int64_t element = 0;
  char straddling[sizeof(float)];
  size_t carried = 0;
  for (const absl::Span<const char> segment : segments) {
    const char* bytes = segment.data();
    size_t left = segment.size();
    if (carried > 0) {
      const size_t missing = sizeof(float) - carried;
      const size_t taken = left < missing ? left : missing;
      std::memcpy(straddling + carried, bytes, taken);
      carried += taken;
      bytes += taken;
      left -= taken;
      if (carried < sizeof(float)) continue;
      run(element++, reinterpret_cast<const UnalignedFloat*>(straddling), int64_t{1});
      carried = 0;
    }
    const int64_t whole = static_cast<int64_t>(left / sizeof(float));
    if (whole > 0) run(element, reinterpret_cast<const UnalignedFloat*>(bytes), whole);
    element += whole;
    carried = left % sizeof(float);
    std::memcpy(straddling, bytes + whole * sizeof(float), carried);
  }
}

}  // namespace ps

#endif  // PS_COMMON_CHUNK_CODEC_H_
