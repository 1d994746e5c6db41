#ifndef EVENSHARD_COMMON_WIRE_CHUNK_CODEC_H_
#define EVENSHARD_COMMON_WIRE_CHUNK_CODEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/element_loop.h"
#include "common/wire/hyperparameters.h"

// Encodes and decodes the messages with chunks (proto/parameter_server.proto) without the generated
// code, which would copy the tensor bytes. The bytes on the wire are the same. Everything of a
// chunk up to the first byte of `data` is encoded into a small buffer, and the tensor's own memory
// follows it. Decoding returns views of the received pieces.

namespace evenshard {

// A byte string that lies in pieces of any length, as gRPC receives it.
using Segments = std::vector<absl::Span<const char>>;

// The version of the messages: see JoinRequest.protocol_version.
inline constexpr uint32_t kProtocolVersion = 5;
// The most chunks in a message of Exchange, which bounds what decoding it takes.
inline constexpr size_t kMostChunks = 64;
// A message of Exchange gets no further chunks once it has so much data. Chunks are at least as
// large where their size is chosen (common/placement/plan/chunk_size.h), so that whole ones travel
// alone.
inline constexpr int64_t kMessageBytes = 16384;

size_t SegmentsSize(const Segments& segments);

// The fields of GradientChunk other than `data`.
struct GradientHeader {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  uint64_t iteration = 0;
  uint32_t chunk = 0;
  uint64_t base_version = 0;
  bool skip = false;
  int32_t encoding = 0;  // an Encoding, or an unknown number as received
  bool hold = false;
  uint64_t view = 0;
  Hyperparameters hyperparameters = {};
  bool absent = false;
  std::optional<uint32_t> assigned = {};
  uint64_t steps = 0;
  uint32_t staleness = 0;
  bool onlooks = false;
  float weight = 1;

  bool has_data() const { return !skip && !absent; }
};

// The fields of ParameterChunk other than `data`.
struct ParameterHeader {
  uint64_t iteration = 0;
  uint32_t chunk = 0;
  uint64_t version = 0;
  int32_t encoding = 0;  // see GradientHeader
  uint64_t view = 0;
  bool unchanged = false;
  bool all_absent = false;
  uint64_t assignments = 0;
  uint64_t recent_assignments = 0;
  uint64_t steps = 0;
  bool dropped = false;
  uint64_t next_iteration = 0;
  bool is_difference = false;

  bool has_data() const { return !unchanged && !dropped; }
};

// The encoded fields of a header, followed by the tag and length of `data`. In a list, the tag and
// length of the chunk come first. The longest is a GradientHeader in which every number has its
// greatest length: 130 bytes.
class EncodedHeader {
 public:
  const char* data() const { return bytes_.data() + begin_; }
  size_t size() const { return end_ - begin_; }

 private:
  friend class HeaderWriter;
  static constexpr size_t kLongestFrame = 11;  // a tag, and a length of 64 bits
  std::array<char, kLongestFrame + 136> bytes_;
  size_t begin_ = kLongestFrame;
  size_t end_ = kLongestFrame;
};

// Encode the header of a message that is one chunk, and of a chunk in a message of Exchange. The
// caller must send exactly `data_bytes` bytes of elements after it, little-endian.
EncodedHeader EncodeHeader(const ParameterHeader& header, size_t data_bytes);
EncodedHeader EncodeListed(const GradientHeader& header, size_t data_bytes);
EncodedHeader EncodeListed(const ParameterHeader& header, size_t data_bytes);

// A decoded chunk. `data` points into the received message, which must outlive it.
template <typename Header>
struct Decoded {
  Header header;
  Segments data;
};

// Decode a message of Exchange with the result that generated code gives: fields may come in any
// order, the last of a field that should come once counts, and unknown fields are skipped. Groups,
// which proto3 does not have, are refused, and so are messages without a chunk or with too many.
// Errors: INVALID_ARGUMENT, which says at which byte the message or the chunk is malformed.
absl::StatusOr<std::vector<Decoded<GradientHeader>>> DecodeGradientChunks(const Segments& message);
absl::StatusOr<std::vector<Decoded<ParameterHeader>>> DecodeParameterChunks(
    const Segments& message);

// Calls `run(first, bytes, count)` for the elements in `segments`, in order. Elements have `kBytes`
// bytes. A run is `count` elements from index `first` on, at an address of any alignment. An
// element that straddles two pieces is assembled in a buffer and passed alone.
// REQUIRES: SegmentsSize(segments) is a multiple of `kBytes`.
template <size_t kBytes, typename Run>
void ForEachElementRun(const Segments& segments, Run run) {
  int64_t element = 0;
  char straddling[kBytes];
  size_t carried = 0;
  for (const absl::Span<const char> segment : segments) {
    const char* bytes = segment.data();
    size_t left = segment.size();
    if (carried > 0) {
      const size_t missing = kBytes - carried;
      const size_t taken = left < missing ? left : missing;
      std::memcpy(straddling + carried, bytes, taken);
      carried += taken;
      bytes += taken;
      left -= taken;
      if (carried < kBytes) continue;
      run(element++, static_cast<const char*>(straddling), int64_t{1});
      carried = 0;
    }
    const int64_t whole = static_cast<int64_t>(left / kBytes);
    if (whole > 0) run(element, bytes, whole);
    element += whole;
    carried = left % kBytes;
    std::memcpy(straddling, bytes + whole * kBytes, carried);
  }
}

// Does the same for float32 elements, as `run(first, floats, count)`.
template <typename Run>
void ForEachFloatRun(const Segments& segments, Run run) {
  ForEachElementRun<sizeof(float)>(segments, [&](int64_t first, const char* bytes, int64_t count) {
    run(first, reinterpret_cast<const UnalignedFloat*>(bytes), count);
  });
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_CHUNK_CODEC_H_
