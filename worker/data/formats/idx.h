#ifndef EVENSHARD_WORKER_DATA_FORMATS_IDX_H_
#define EVENSHARD_WORKER_DATA_FORMATS_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/formats/in_memory.h"

namespace evenshard {

// The IDX format of MNIST (LeCun, Cortes, Burges, "The MNIST database of handwritten digits"): a
// big-endian magic number that gives the element type and the number of dimensions, the dimensions,
// and the elements. The files may be compressed with gzip, as the published ones are. Errors: as
// for ReadFile; INVALID_ARGUMENT for a file of another format or with a dimension out of range;
// DATA_LOSS if the length is not the one that the header gives.

// Reads unsigned bytes in 3 dimensions: images, rows, columns. The result has one channel and no
// labels.
absl::StatusOr<ByteImages> ReadIdxImages(const std::string& path);

// Reads unsigned bytes in one dimension: the labels of `images` images. Further errors:
// INVALID_ARGUMENT for another number of labels, or a label outside [0, classes).
absl::StatusOr<std::vector<uint8_t>> ReadIdxLabels(const std::string& path, int64_t images,
                                                   int64_t classes);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_IDX_H_
