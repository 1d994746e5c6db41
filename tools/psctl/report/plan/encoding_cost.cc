#include "tools/psctl/report/plan/encoding_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// A chunk's worth, which leaves the fast caches as chunks do.
constexpr int64_t kElements = int64_t{1} << 20;
constexpr int kRuns = 5;

// The shortest of some runs, since others may have been interrupted.
double NanosecondsPerElement(absl::FunctionRef<void()> run) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const absl::Time start = absl::Now();
    run();
    least = std::min(least, absl::ToDoubleNanoseconds(absl::Now() - start));
  }
  return least / kElements;
}

}  // namespace

EncodingCost MeasureEncoding(Encoding encoding) {
  std::vector<float> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) values[i] = std::sin(static_cast<float>(i));
  std::string data(EncodedBytes(encoding, kElements), '\0');
  EncodingCost cost = {.bits = 8.0 * static_cast<double>(data.size()) / kElements};
  cost.encode_nanoseconds = NanosecondsPerElement([&] { Encode(encoding, values, data.data()); });
  cost.decode_nanoseconds = NanosecondsPerElement(
      [&] { Decode(encoding, {absl::MakeConstSpan(data)}, absl::MakeSpan(values)); });
  cost.pays_below_gbps = (32 - cost.bits) / (cost.encode_nanoseconds + cost.decode_nanoseconds);
  return cost;
}

}  // namespace evenshard
