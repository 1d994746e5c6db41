#ifndef EVENSHARD_COMMON_WIRE_ENCODING_H_
#define EVENSHARD_COMMON_WIRE_ENCODING_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/types/span.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/half_width.h"
#include "proto/encoding.pb.h"

// Conversion of the data of chunk messages between float32 in memory and each Encoding on the wire,
// where the bytes of a received message lie in pieces.

namespace evenshard {

// Elements that are converted at a time, few enough to stay in the processor's cache.
inline constexpr int64_t kBlockElements = 2048;

// Returns the format of a 16-bit encoding, or null for FLOAT32.
inline const HalfWidth* HalfWidthOf(Encoding encoding) {
  if (encoding == FLOAT16) return &Float16();
  if (encoding == BFLOAT16) return &Bfloat16();
  return nullptr;
}

// Returns the size of `elements` encoded elements.
inline int64_t EncodedBytes(Encoding encoding, int64_t elements) {
  return elements * (HalfWidthOf(encoding) == nullptr ? 4 : 2);
}

// Returns the name, as in "FLOAT16", or "encoding 7" if this program does not know the number.
std::string EncodingName(int32_t encoding);

// Returns the names of all encodings for which `take` returns true, separated by commas.
std::string EncodingNames(const std::function<bool(Encoding)>& take);

// Returns what an error message about a value that is not finite adds for this encoding, as in
// " (or beyond 65504, the largest FLOAT16)". It is empty for FLOAT32.
std::string RangeOf(Encoding encoding);

// Returns whether all values stay finite when encoded. REQUIRES: they are finite.
bool FitsEncoding(Encoding encoding, absl::Span<const float> values);

// Writes EncodedBytes(encoding, values.size()) bytes to `out`.
void Encode(Encoding encoding, absl::Span<const float> values, char* out);

// Writes the elements in `data` to `out`. REQUIRES: `data` holds a whole number of elements.
void Decode(Encoding encoding, const Segments& data, float* out);

// Writes the bytes in `data` to `out` as they are.
void Copy(const Segments& data, char* out);

// Replaces values by what Decode makes of them after Encode. Changes nothing if one of them would
// not stay finite.
void RoundTo(Encoding encoding, absl::Span<float> values);

// Returns the index of the first element that is a NaN or an infinity, or -1 if all are finite.
int64_t FindNonFinite(Encoding encoding, const Segments& data);

// Calls `run(first, floats, count)` for the elements in `data`, in order, as ForEachFloatRun does.
// FLOAT32 elements are passed where they lie. Others are decoded in blocks of at most
// kBlockElements; a block is valid only during the call.
template <typename Run>
void ForEachDecodedRun(Encoding encoding, const Segments& data, Run run) {
  const HalfWidth* const half = HalfWidthOf(encoding);
  if (half == nullptr) {
    ForEachFloatRun(data, run);
    return;
  }
  alignas(64) float block[kBlockElements];
  ForEachElementRun<sizeof(uint16_t)>(data, [&](int64_t first, const char* bytes, int64_t count) {
    const UnalignedHalf* encoded = reinterpret_cast<const UnalignedHalf*>(bytes);
    for (int64_t begin = 0; begin < count; begin += kBlockElements) {
      const int64_t size = std::min(kBlockElements, count - begin);
      half->decode(encoded + begin, size, block);
      run(first + begin, static_cast<const UnalignedFloat*>(block), size);
    }
  });
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_ENCODING_H_
