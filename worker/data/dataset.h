#ifndef PS_WORKER_DATA_DATASET_H_
#define PS_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config.h"
#include "common/model.h"
#include "common/random.h"

namespace ps {

// Labelled images of one shape. Immutable and thread-safe once open.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  virtual Shape3 shape() const = 0;  // of what Read writes
  virtual int64_t classes() const = 0;

  // Writes image `index`, normalised, into `image` (shape().size() floats) and its
  // class into `label`. `augment`, where not null, draws the random flip and crop of
  // this reading. Errors: DATA_LOSS for a damaged file, NOT_FOUND and the like for one that
  // cannot be read; they name the file.
  virtual absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                            int32_t* label) const = 0;
};

// What a run trains and evaluates on.
struct Datasets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null where the config names none and holds nothing out
};

// Opens what the config's `data` names. IDX and CIFAR-10 images are normalised to mean 0
// and standard deviation 1 in each channel over the images that are trained on, test
// images by the same numbers; image folders as ImageFolder says.
//
// Errors: INVALID_ARGUMENT with the config's field and place for data without a source
// (which only the `emulated` backend does without), a file that cannot be read, is
// truncated or foreign, images whose shape is not the model's input, labels outside the
// model's classes, too few images for one batch per worker.
absl::StatusOr<Datasets> OpenDatasets(const Config& config);

}  // namespace ps

#endif  // PS_WORKER_DATA_DATASET_H_
