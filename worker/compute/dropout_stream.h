#ifndef PS_WORKER_COMPUTE_DROPOUT_STREAM_H_
#define PS_WORKER_COMPUTE_DROPOUT_STREAM_H_

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/hash.h"

namespace ps {

// The stream of CounterRandom by which a dropout layer drops: its number i below the probability
// drops element i of [images, channels, rows, columns]. Every backend drops the same.
inline uint64_t DropoutStream(absl::string_view layer, int rank, int64_t iteration) {
  return Fnv1a64(absl::StrCat("dropout/", layer, "/rank ", rank, "/iteration ", iteration));
}

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_DROPOUT_STREAM_H_
