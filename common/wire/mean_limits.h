#ifndef EVENSHARD_COMMON_WIRE_MEAN_LIMITS_H_
#define EVENSHARD_COMMON_WIRE_MEAN_LIMITS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace evenshard {

// The most values of a mean over the workers (MeanRequest, RingNote).
inline constexpr size_t kMaxMeanValues = 4096;
// The longest name of its place in a program.
inline constexpr size_t kMaxMeanPlaceBytes = 4096;
// How many means a shard keeps, and a worker may have to tell it.
inline constexpr size_t kMostMeans = 1024;

// Errors: INVALID_ARGUMENT for more of either.
inline absl::Status CheckMean(size_t values, size_t place_bytes) {
  if (values > kMaxMeanValues) {
    return absl::InvalidArgumentError(absl::StrCat("the mean is asked of ", values,
                                                   " values; allowed: at most ", kMaxMeanValues));
  }
  if (place_bytes > kMaxMeanPlaceBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the place of a mean has ", place_bytes, " bytes; allowed: at most ", kMaxMeanPlaceBytes));
  }
  return absl::OkStatus();
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_MEAN_LIMITS_H_
