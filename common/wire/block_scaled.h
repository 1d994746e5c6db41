#ifndef EVENSHARD_COMMON_WIRE_BLOCK_SCALED_H_
#define EVENSHARD_COMMON_WIRE_BLOCK_SCALED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/wire/chunk_codec.h"

// Vectorised conversions between float32 and formats in which a block of consecutive elements has
// one scale. Every processor gives the same bits. docs/protocol.md has the layout byte by byte.

namespace evenshard {

// How values are rounded to a block-scaled format: to nearest, or up or down by chance, so that the
// expected value is exact (as in QSGD, arXiv:1610.02132). The random number of a value is a pure
// function of `key` and the value's index, `first` for the first one that is encoded.
struct Rounding {
  bool is_stochastic = false;
  uint32_t key = 0;
  uint32_t first = 0;
};

// Returns the key of a worker's push of an iteration. Workers have different ones, so that their
// errors are independent and average out.
uint32_t RoundingKey(uint32_t worker, uint64_t iteration);

// The largest block, in elements, and encoded, in bytes.
inline constexpr size_t kMostBlockElements = 256;
inline constexpr size_t kMostBlockBytes = sizeof(uint16_t) + kMostBlockElements;

// A block-scaled format. Thread-safe.
//
// An encoded block of m elements is its scale, a bfloat16, and m codes. Blocks begin at the first
// element; only the last may be short. With `bits` 4, byte i has the code of element i in its low
// half and of element i + (m + 1) / 2 in its high half, which is zero if there is no such element.
// Decoding multiplies the scale by what the code stands for, which is exact. The scale of a block
// in which a magnitude is 2^127 or more, or a NaN, is a NaN; its codes are 1 for these elements and
// 0 for the others. A block whose magnitudes are all below 2^-119 is all zeros.
struct BlockScaled {
  int64_t block;  // elements
  int bits;       // of a code
  void (*encode)(const float* values, int64_t n, const Rounding& rounding, char* out);
  void (*decode)(const char* encoded, int64_t n, float* out);
  // Rounding to nearest changes a value x by at most max(relative_error * |x|, absolute_error * M)
  // or 2^-119, with M the largest magnitude in its block. Both bounds are tight.
  // Stochastic rounding changes it by at most `stochastic` times as much.
  double relative_error;
  double absolute_error;
  int stochastic;

  // The sizes of `n` encoded elements, and of a block that is not short.
  int64_t Bytes(int64_t n) const {
    const int64_t rest = n % block;
    return n / block * block_bytes() +
           (rest == 0 ? 0 : static_cast<int64_t>(sizeof(uint16_t)) + (rest * bits + 7) / 8);
  }
  int64_t block_bytes() const { return static_cast<int64_t>(sizeof(uint16_t)) + block * bits / 8; }
};

// Integers from -127 to 127 in two's complement. Blocks of 256.
const BlockScaled& Int8();
// Integers from -7 to 7 in two's complement. Blocks of 64.
const BlockScaled& Int4();
// A sign and an exponent e of 3 bits: 2^(e - 7), and zero for e = 0; of Streaming DiLoCo
// (arXiv:2501.18512). Blocks of 64.
const BlockScaled& E3m0();

// Returns the index of the first of `n` elements that is decoded to a NaN or an infinity, or -1.
// Where the scale is the cause, it is the first element of the block whose code is not zero, or
// else the block's first. `encoded` may be any bytes.
int64_t FindNonFinite(const BlockScaled& format, const char* encoded, int64_t n);

// Calls `run(first, bytes, count)` for the `n` elements in `data`, in order, in runs of whole
// blocks, or of what there is of the last one, of at most `most` elements. A block that straddles
// two pieces is assembled in a buffer and passed alone. REQUIRES: `data` has format.Bytes(n) bytes;
// `most` is a multiple of the block, or at least `n`.
template <typename Run>
void ForEachBlockRun(const BlockScaled& format, const Segments& data, int64_t n, int64_t most,
                     Run run) {
  char straddling[kMostBlockBytes];
  int64_t carried = 0;
  int64_t first = 0;
  const auto pass = [&](const char* bytes, int64_t count) {
    run(first, bytes, count);
    first += count;
  };
  for (const absl::Span<const char> segment : data) {
    const char* bytes = segment.data();
    int64_t left = static_cast<int64_t>(segment.size());
    while (left > 0 && first < n) {
      const int64_t in_block = std::min(format.block, n - first);
      if (carried == 0 && left >= format.Bytes(in_block)) {
        int64_t count = std::min(left / format.block_bytes() * format.block, n - first);
        count = std::clamp(count, in_block, most);
        pass(bytes, count);
        bytes += format.Bytes(count);
        left -= format.Bytes(count);
        continue;
      }
      const int64_t taken = std::min(left, format.Bytes(in_block) - carried);
      std::memcpy(straddling + carried, bytes, taken);
      carried += taken;
      bytes += taken;
      left -= taken;
      if (carried < format.Bytes(in_block)) break;
      pass(straddling, in_block);
      carried = 0;
    }
  }
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_BLOCK_SCALED_H_
