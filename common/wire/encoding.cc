#include "common/wire/encoding.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/wire/non_finite.h"

namespace evenshard {

std::string EncodingName(int32_t encoding) {
  return Encoding_IsValid(encoding) ? Encoding_Name(static_cast<Encoding>(encoding))
                                    : absl::StrCat("encoding ", encoding);
}

std::string EncodingNames(const std::function<bool(Encoding)>& take) {
  std::string names;
  for (int number = Encoding_MIN; number <= Encoding_MAX; ++number) {
    if (!take(static_cast<Encoding>(number))) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", EncodingName(number));
  }
  return names;
}

namespace {

// The largest finite values of an encoding of 16 bits, which precede infinity: the last but one,
// and the last.
std::array<float, 2> LargestOf(const HalfWidth& half) {
  const auto infinity = static_cast<uint16_t>(half.exponent_bits);
  const std::array<uint16_t, 2> bits = {static_cast<uint16_t>(infinity - 2),
                                        static_cast<uint16_t>(infinity - 1)};
  std::array<float, 2> values;
  half.decode(bits.data(), 2, values.data());
  return values;
}

// From this magnitude on a block has no scale.
constexpr float kBlockLimit = 0x1p127f;

}  // namespace

std::string RangeOf(Encoding encoding) {
  if (encoding == FLOAT32) return "";
  const HalfWidth* const half = HalfWidthOf(encoding);
  const float largest = half != nullptr ? LargestOf(*half)[1] : std::nextafter(kBlockLimit, 0.0f);
  return absl::StrCat(" (or beyond ", largest, ", the largest ", EncodingName(encoding), ")");
}

float OverflowsFrom(Encoding encoding) {
  if (encoding == FLOAT32) return std::numeric_limits<float>::infinity();
  const HalfWidth* const half = HalfWidthOf(encoding);
  if (half == nullptr) return kBlockLimit;
  const auto [before, largest] = LargestOf(*half);
  return largest + (largest - before) / 2;  // a tie, of which the infinity is the even one
}

bool FitsEncoding(Encoding encoding, absl::Span<const float> values) {
  if (encoding == FLOAT32) return true;
  char encoded[kBlockElements * sizeof(uint16_t)];  // the widest encodings are of 16 bits
  for (size_t begin = 0; begin < values.size(); begin += kBlockElements) {
    const absl::Span<const float> block = values.subspan(begin, kBlockElements);
    const int64_t n = static_cast<int64_t>(block.size());
    Encode(encoding, block, encoded);
    const auto bytes = static_cast<size_t>(EncodedBytes(encoding, n));
    if (FindNonFinite(encoding, {{encoded, bytes}}, n) >= 0) return false;
  }
  return true;
}

void Encode(Encoding encoding, absl::Span<const float> values, char* out,
            const Rounding& rounding) {
  const int64_t n = static_cast<int64_t>(values.size());
  if (const BlockScaled* const blocks = BlockScaledOf(encoding)) {
    blocks->encode(values.data(), n, rounding, out);
  } else if (const HalfWidth* const half = HalfWidthOf(encoding)) {
    half->encode(values.data(), n, reinterpret_cast<UnalignedHalf*>(out));
  } else if (n > 0) {  // nothing may have no address
    std::memcpy(out, values.data(), n * sizeof(float));
  }
}

void Decode(Encoding encoding, const Segments& data, absl::Span<float> out) {
  if (const BlockScaled* const blocks = BlockScaledOf(encoding)) {
    const auto n = static_cast<int64_t>(out.size());
    ForEachBlockRun(*blocks, data, n, /*most=*/n,
                    [&](int64_t first, const char* bytes, int64_t count) {
                      blocks->decode(bytes, count, out.data() + first);
                    });
  } else if (const HalfWidth* const half = HalfWidthOf(encoding)) {
    ForEachElementRun<sizeof(uint16_t)>(data, [&](int64_t first, const char* bytes, int64_t count) {
      half->decode(reinterpret_cast<const UnalignedHalf*>(bytes), count, out.data() + first);
    });
  } else {
    Copy(data, reinterpret_cast<char*>(out.data()));
  }
}

void Copy(const Segments& data, char* out) {
  for (const absl::Span<const char> segment : data) {
    if (segment.empty()) continue;
    std::memcpy(out, segment.data(), segment.size());
    out += segment.size();
  }
}

void RoundTo(Encoding encoding, absl::Span<float> values) {
  if (encoding == FLOAT32 || !FitsEncoding(encoding, values)) return;
  std::string encoded(EncodedBytes(encoding, static_cast<int64_t>(values.size())), '\0');
  Encode(encoding, values, encoded.data());
  Decode(encoding, {{encoded.data(), encoded.size()}}, values);
}

int64_t FindNonFinite(Encoding encoding, const Segments& data, int64_t elements) {
  int64_t found = -1;
  // Takes what was found in a run of elements that begins with `first`.
  const auto take = [&](int64_t first, int64_t found_in_run) {
    if (found_in_run >= 0) found = first + found_in_run;
  };
  if (const BlockScaled* const blocks = BlockScaledOf(encoding)) {
    ForEachBlockRun(*blocks, data, elements, /*most=*/elements,
                    [&](int64_t first, const char* bytes, int64_t count) {
                      if (found < 0) take(first, FindNonFinite(*blocks, bytes, count));
                    });
  } else if (const HalfWidth* const half = HalfWidthOf(encoding)) {
    ForEachElementRun<sizeof(uint16_t)>(data, [&](int64_t first, const char* bytes, int64_t count) {
      if (found >= 0) return;
      const UnalignedHalf* encoded = reinterpret_cast<const UnalignedHalf*>(bytes);
      take(first, FindNonFinite(encoded, count, half->exponent_bits));
    });
  } else {
    ForEachFloatRun(data, [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
      if (found < 0) take(first, FindNonFinite(floats, count));
    });
  }
  return found;
}

}  // namespace evenshard
