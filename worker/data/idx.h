#ifndef PS_WORKER_DATA_IDX_H_
#define PS_WORKER_DATA_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/in_memory.h"

namespace ps {

// The IDX format of MNIST (LeCun, Cortes, Burges, "The MNIST database of handwritten
// digits"): a big-endian magic number that tells the element type and the number of
// dimensions, the dimensions, then the elements. The files may be gzip-compressed, as
// published. Errors: as ReadFile; INVALID_ARGUMENT for a foreign file; DATA_LOSS where
// the length is not the one in the header.

// Unsigned bytes in 3 dimensions: images, rows, columns. One channel, without labels.
absl::StatusOr<ByteImages> ReadIdxImages(const std::string& path);

// Unsigned bytes in one dimension: a label for each of `images` images. Errors also:
// INVALID_ARGUMENT for another number of labels, or a label outside [0, classes).
absl::StatusOr<std::vector<uint8_t>> ReadIdxLabels(const std::string& path, int64_t images,
                                                   int64_t classes);

}  // namespace ps

#endif  // PS_WORKER_DATA_IDX_H_
