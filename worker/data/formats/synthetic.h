#ifndef EVENSHARD_WORKER_DATA_FORMATS_SYNTHETIC_H_
#define EVENSHARD_WORKER_DATA_FORMATS_SYNTHETIC_H_

#include <cstdint>
#include <vector>

#include "worker/data/formats/dataset.h"

namespace evenshard {

// Images that can be learned: image i is the pattern of class i % classes plus noise,
// (pattern + noise * n) / sqrt(1 + noise^2), with standard normal pattern and n. Every image is a
// pure function of (seed, index).
//
// Patterns and noise are windows into one table of random numbers. Reading an image of 224x224 thus
// costs one pass over memory instead of 150,528 random numbers, and 1,000 classes need no memory of
// their own. Ignores `augment`.
class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(const Shape3& shape, int64_t classes, int64_t size, float noise, uint64_t seed);

  int64_t size() const override { return size_; }
  Shape3 shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                    int32_t* label) const override;

 private:
  const Shape3 shape_;
  const int64_t classes_;
  const int64_t size_;
  const float pattern_scale_;
  const float noise_scale_;
  const CounterRandom noise_windows_;
  std::vector<float> table_;  // constant after construction
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_SYNTHETIC_H_
