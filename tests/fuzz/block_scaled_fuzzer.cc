// libFuzzer target: the decoders of INT8, INT4 and E3M0, which take any bytes of the right length.
// In pieces they must give what they give in one, and FindNonFinite must find an element that is
// not finite if and only if there is one.
//
// The first byte of the input selects the format, the next two say how many elements there are, and
// the fourth says how long the pieces are; the rest, with zeros behind it, is the data.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/wire/block_scaled.h"
#include "common/wire/non_finite.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

constexpr size_t kHeader = 4;
constexpr int64_t kMostElements = 2000;

void Check(const BlockScaled& format, int64_t n, size_t piece, const uint8_t* data, size_t size) {
  std::vector<char> bytes(format.Bytes(n));
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  std::vector<float> whole(n);
  format.decode(bytes.data(), n, whole.data());

  // Each piece has memory of its own, so that AddressSanitizer sees a read beyond it.
  std::vector<std::vector<char>> memory;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    const size_t end = std::min(bytes.size(), begin + piece);
    memory.emplace_back(bytes.begin() + begin, bytes.begin() + end);
  }
  Segments segments;
  for (const std::vector<char>& each : memory) segments.push_back(each);
  std::vector<float> in_pieces(n);
  int64_t next = 0, found_in_pieces = -1;
  ForEachBlockRun(format, segments, n, /*most=*/2048,
                  [&](int64_t first, const char* run, int64_t count) {
                    Require(first == next, "a run begins elsewhere");
                    format.decode(run, count, in_pieces.data() + first);
                    const int64_t found = FindNonFinite(format, run, count);
                    if (found_in_pieces < 0 && found >= 0) found_in_pieces = first + found;
                    next += count;
                  });
  Require(next == n, "the number of elements");
  Require(std::memcmp(whole.data(), in_pieces.data(), n * sizeof(float)) == 0, "pieces differ");

  const int64_t found = FindNonFinite(format, bytes.data(), n);
  Require(found == found_in_pieces, "another element is found in pieces");
  const bool is_finite =
      std::all_of(whole.begin(), whole.end(), [](float value) { return std::isfinite(value); });
  Require(found >= -1 && found < n && (found == -1) == is_finite, "what is not finite");
  Require(found == -1 || !std::isfinite(whole[found]), "the element that is not finite");
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using evenshard::kHeader;
  if (size < kHeader) return 0;
  const evenshard::BlockScaled* const formats[] = {&evenshard::Int8(), &evenshard::Int4(),
                                                   &evenshard::E3m0()};
  const int64_t n = 1 + (input[1] | input[2] << 8) % evenshard::kMostElements;
  evenshard::Check(*formats[input[0] % 3], n, 1 + input[3], input + kHeader, size - kHeader);
  return 0;
}
