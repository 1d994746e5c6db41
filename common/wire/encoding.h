#ifndef EVENSHARD_COMMON_WIRE_ENCODING_H_
#define EVENSHARD_COMMON_WIRE_ENCODING_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/types/span.h"
#include "common/wire/block_scaled.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/half_width.h"
#include "proto/encoding.pb.h"

// Conversion of the data of chunk messages between float32 in memory and each Encoding on the wire,
// where the bytes of a received message lie in pieces.

namespace evenshard {

// Elements that are converted at a time, few enough to stay in the processor's cache. Each
// BlockScaled::block divides it.
inline constexpr int64_t kBlockElements = 2048;

// Returns the format of a 16-bit encoding, or null for others.
inline const HalfWidth* HalfWidthOf(Encoding encoding) {
  if (encoding == FLOAT16) return &Float16();
  if (encoding == BFLOAT16) return &Bfloat16();
  return nullptr;
}

// Returns the format of a block-scaled encoding, or null for others.
inline const BlockScaled* BlockScaledOf(Encoding encoding) {
  if (encoding == INT8) return &Int8();
  if (encoding == INT4) return &Int4();
  if (encoding == E3M0) return &E3m0();
  return nullptr;
}

// Returns the size of `elements` elements that are encoded together.
inline int64_t EncodedBytes(Encoding encoding, int64_t elements) {
  if (const BlockScaled* const blocks = BlockScaledOf(encoding)) return blocks->Bytes(elements);
  return elements * (HalfWidthOf(encoding) == nullptr ? 4 : 2);
}

// Returns the name, as in "FLOAT16", or "encoding 7" if this program does not know the number.
std::string EncodingName(int32_t encoding);

// Returns the names of all encodings for which `take` returns true, separated by commas.
std::string EncodingNames(const std::function<bool(Encoding)>& take);

// Returns what an error message about a value that is not finite adds for this encoding, as in
// " (or beyond 65504, the largest FLOAT16)". It is empty for FLOAT32.
std::string RangeOf(Encoding encoding);

// Returns the least magnitude of which an encoding makes an infinity, or a NaN.
float OverflowsFrom(Encoding encoding);

// Returns whether all values stay finite when encoded. REQUIRES: they are finite.
bool FitsEncoding(Encoding encoding, absl::Span<const float> values);

// Writes EncodedBytes(encoding, values.size()) bytes to `out`. `rounding` is for block-scaled
// encodings; others round to nearest.
void Encode(Encoding encoding, absl::Span<const float> values, char* out,
            const Rounding& rounding = {});

// Writes the elements in `data` to `out`. REQUIRES: `data` holds out.size() elements, and so below
// for `elements`.
void Decode(Encoding encoding, const Segments& data, absl::Span<float> out);

// Writes the bytes in `data` to `out` as they are.
void Copy(const Segments& data, char* out);

// Replaces values by what Decode makes of them after Encode. Changes nothing if one of them would
// not stay finite.
void RoundTo(Encoding encoding, absl::Span<float> values);

// Returns the index of the first element that is a NaN or an infinity, or -1 if all are finite. In
// a block-scaled encoding that is where the NaN or the infinity was, although the whole block is
// decoded to NaNs.
int64_t FindNonFinite(Encoding encoding, const Segments& data, int64_t elements);

// Calls `run(first, floats, count)` for the elements in `data`, in order, as ForEachFloatRun does.
// FLOAT32 elements are passed where they lie. Others are decoded in blocks of at most
// kBlockElements; a block is valid only during the call.
template <typename Run>
void ForEachDecodedRun(Encoding encoding, const Segments& data, int64_t elements, Run run) {
  if (encoding == FLOAT32) {
    ForEachFloatRun(data, run);
    return;
  }
  alignas(64) float block[kBlockElements];
  if (const BlockScaled* const blocks = BlockScaledOf(encoding)) {
    ForEachBlockRun(*blocks, data, elements, kBlockElements,
                    [&](int64_t first, const char* bytes, int64_t count) {
                      blocks->decode(bytes, count, block);
                      run(first, static_cast<const UnalignedFloat*>(block), count);
                    });
    return;
  }
  const HalfWidth* const half = HalfWidthOf(encoding);
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
