#ifndef EVENSHARD_WORKER_DATA_FORMATS_SUBSET_H_
#define EVENSHARD_WORKER_DATA_FORMATS_SUBSET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/data/formats/dataset.h"

namespace evenshard {

// The images of a data set to train on and to evaluate on, both in ascending order.
struct Split {
  std::vector<uint32_t> train;
  std::vector<uint32_t> test;
};

// Holds out round(fraction * size) of `size` images for the test set, at least one if the fraction
// is above 0. `seed` selects them. Every image is in exactly one of the two sets.
Split HoldOut(int64_t size, double fraction, uint64_t seed);

// A subset of the images of a data set, which other views may share.
class SubsetDataset : public Dataset {
 public:
  SubsetDataset(std::shared_ptr<const Dataset> base, std::vector<uint32_t> indices);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Shape3 shape() const override { return base_->shape(); }
  int64_t classes() const override { return base_->classes(); }
  absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                    int32_t* label) const override;

 private:
  const std::shared_ptr<const Dataset> base_;
  const std::vector<uint32_t> indices_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_SUBSET_H_
