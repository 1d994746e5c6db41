#ifndef EVENSHARD_WORKER_DATA_FORMATS_AUGMENT_H_
#define EVENSHARD_WORKER_DATA_FORMATS_AUGMENT_H_

#include <cstdint>
#include <memory>

#include "worker/data/formats/dataset.h"

namespace evenshard {

// The random choices for one read of an image, a pure function of the random stream.
struct Augmentation {
  bool flip = false;  // mirror left to right
  int64_t top = 0;    // of the crop, in [0, free_rows]
  int64_t left = 0;   // in [0, free_columns]
};
Augmentation DrawAugmentation(const CounterRandom& random, bool flip, int64_t free_rows,
                              int64_t free_columns);

// Flips images at random, and crops them at random after padding each side with `padding` zeros, as
// in He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2. Zero is the
// mean of the training set, since the images are normalised. Without random numbers an image stays
// unchanged.
class AugmentedDataset : public Dataset {
 public:
  AugmentedDataset(std::unique_ptr<const Dataset> base, bool flip, int64_t padding);

  int64_t size() const override { return base_->size(); }
  Shape3 shape() const override { return base_->shape(); }
  int64_t classes() const override { return base_->classes(); }
  absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                    int32_t* label) const override;

 private:
  const std::unique_ptr<const Dataset> base_;
  const bool flip_;
  const int64_t padding_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_AUGMENT_H_
