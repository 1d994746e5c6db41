#include "worker/data/formats/subset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/data/order/permutation.h"

namespace evenshard {

Split HoldOut(int64_t size, double fraction, uint64_t seed) {
  const std::vector<uint32_t> order = Permutation(size, CounterRandom(seed, "holdout"));
  int64_t held = std::llround(fraction * static_cast<double>(size));
  if (fraction > 0) held = std::max<int64_t>(held, 1);
  Split split;
  split.test.assign(order.begin(), order.begin() + held);
  split.train.assign(order.begin() + held, order.end());
  std::sort(split.test.begin(), split.test.end());
  std::sort(split.train.begin(), split.train.end());
  return split;
}

SubsetDataset::SubsetDataset(std::shared_ptr<const Dataset> base, std::vector<uint32_t> indices)
    : base_(std::move(base)), indices_(std::move(indices)) {}

absl::Status SubsetDataset::Read(int64_t index, const CounterRandom* augment,
                                 absl::Span<float> image, int32_t* label) const {
  return base_->Read(indices_[index], augment, image, label);
}

}  // namespace evenshard
