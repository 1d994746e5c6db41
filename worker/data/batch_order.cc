#include "worker/data/batch_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/data/permutation.h"

namespace ps {

ShuffledOrder::ShuffledOrder(const Options& options)
    : options_(options),
      batches_per_epoch_(options.images / (options.workers * options.batch_size)) {}

std::vector<ImageToRead> ShuffledOrder::operator()(int64_t iteration) {
  const int64_t epoch = iteration / batches_per_epoch_;
  if (epoch != epoch_) {
    permutation_ =
        Permutation(options_.images, CounterRandom(options_.seed, absl::StrCat("shuffle/", epoch)));
    epoch_ = epoch;
  }
  const int64_t first = iteration % batches_per_epoch_ * options_.batch_size;
  std::vector<ImageToRead> batch(options_.batch_size);
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    batch[i].index = permutation_[options_.rank + (first + i) * options_.workers];
    if (!options_.augment) continue;
    // The stream depends on the image, not on worker or position, so that whoever reads the image
    // augments it alike.
    batch[i].augment.emplace(options_.seed, absl::StrCat("augment/", epoch, "/", batch[i].index));
  }
  return batch;
}

BatchOrder SequentialOrder(int64_t images, int64_t batch_size) {
  return [images, batch_size](int64_t batch) {
    const int64_t first = batch * batch_size;
    std::vector<ImageToRead> order(std::clamp<int64_t>(images - first, 0, batch_size));
    for (size_t i = 0; i < order.size(); ++i) order[i].index = first + i;
    return order;
  };
}

}  // namespace ps
