#ifndef PS_COMMON_ENCODING_H_
#define PS_COMMON_ENCODING_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/types/span.h"
#include "common/chunk_codec.h"
#include "common/half_width.h"
#include "proto/encoding.pb.h"

// The data of chunk messages in each Encoding, between float32 in memory and bytes in pieces.

namespace ps {

// Elements that are converted at a time where a whole chunk would leave the cache.
inline constexpr int64_t kBlockElements = 2048;

// The format of an encoding of 16 bits; null for FLOAT32.
inline const HalfWidth* HalfWidthOf(Encoding encoding) {
  if (encoding == FLOAT16) return &Float16();
  if (encoding == BFLOAT16) return &Bfloat16();
  return nullptr;
}

// The bytes of so many elements.
inline int64_t EncodedBytes(Encoding encoding, int64_t elements) {
  return elements * (HalfWidthOf(encoding) == nullptr ? 4 : 2);
}

// "FLOAT16", or the number where this program does not know the encoding.
std::string EncodingName(int32_t encoding);

// The names, separated by commas, of those encodings known to this program that `take` takes.
std::string EncodingNames(const std::function<bool(Encoding)>& take);

// What values beyond the range of an encoding get into an error, such as " (or beyond 65504,
// the largest FLOAT16)"; empty for FLOAT32.
std::string RangeOf(Encoding encoding);

// Whether none of these finite values becomes an infinity.
bool FitsEncoding(Encoding encoding, absl::Span<const float> values);

// Writes EncodedBytes(encoding, values.size()) bytes to `out`.
void Encode(Encoding encoding, absl::Span<const float> values, char* out);

// Writes the elements in `data`, which must be whole, to `out`.
void Decode(Encoding encoding, const Segments& data, float* out);

// The first element that is a NaN or an infinity, or -1.
int64_t FindNonFinite(Encoding encoding, const Segments& data);

// Calls `run(first, floats, count)` for the elements in `data`, in order, as ForEachFloatRun
// does: where they are, or, of 16 bits, decoded in blocks that stay in the cache.
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

}  // namespace ps

#endif  // PS_COMMON_ENCODING_H_
