#ifndef EVENSHARD_WORKER_DATA_BATCH_H_
#define EVENSHARD_WORKER_DATA_BATCH_H_

#include <cstdint>

#include "absl/types/span.h"

namespace evenshard {

// A view of some images and their labels. The code that filled it owns the memory.
struct Batch {
  int64_t size = 0;
  absl::Span<const float> images;    // size x channels x height x width, normalised
  absl::Span<const int32_t> labels;  // size, each in [0, classes)
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_BATCH_H_
