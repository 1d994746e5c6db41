#ifndef EVENSHARD_WORKER_COMPUTE_DROPOUT_STREAM_H_
#define EVENSHARD_WORKER_COMPUTE_DROPOUT_STREAM_H_

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/hash.h"

namespace evenshard {

// Returns the CounterRandom stream of a dropout layer in one iteration. The layer drops element i
// of [images, channels, rows, columns] if number i of the stream is below the drop probability. All
// backends use this stream, and so drop the same elements.
inline uint64_t DropoutStream(absl::string_view layer, int rank, int64_t iteration) {
  return Fnv1a64(absl::StrCat("dropout/", layer, "/rank ", rank, "/iteration ", iteration));
}

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_DROPOUT_STREAM_H_
