#ifndef EVENSHARD_WORKER_DATA_FORMATS_DATASET_H_
#define EVENSHARD_WORKER_DATA_FORMATS_DATASET_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/random.h"
#include "common/placement/model/model.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// Labelled images of one shape. Immutable and thread-safe once open.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  virtual Shape3 shape() const = 0;  // of what Read writes
  virtual int64_t classes() const = 0;

  // Writes image `index`, normalised, to `image` (shape().size() floats) and its class to `label`.
  // If `augment` is not null, it determines the random flip and crop of this read. Errors name the
  // file: DATA_LOSS if it is damaged, NOT_FOUND or another status if it cannot be read.
  virtual absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                            int32_t* label) const = 0;
};

// The data sets that a run trains and evaluates on.
struct Datasets {
  std::unique_ptr<Dataset> train;
  // Null if the config neither names a test set nor holds images out.
  std::unique_ptr<Dataset> test;
};

// Opens the data sets that the config's `data` names. IDX and CIFAR-10 images are normalised so
// that each channel of the images that are trained on has mean 0 and standard deviation 1. Test
// images are normalised with the same numbers. ImageFolder describes how image folders are
// normalised.
//
// Errors: INVALID_ARGUMENT, with the config's field and its position, if `data` names no source
// (which only the `emulated` backend permits), if a file cannot be read, is truncated or has
// another format, if the images do not have the shape of the model's input, if a label is outside
// the model's classes, or if there are fewer images than one batch per worker.
absl::StatusOr<Datasets> OpenDatasets(const PlannedConfig& config);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_DATASET_H_
