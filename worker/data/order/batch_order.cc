#include "worker/data/order/batch_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/data/order/permutation.h"

namespace evenshard {

std::vector<ImageToRead> ShuffledOrder::operator()(int64_t iteration) {
  const std::optional<Dealing::Share> share = options_.dealing.ShareOf(options_.rank, iteration);
  if (!share.has_value()) return {};
  const int64_t epoch = share->epoch;
  if (epoch != epoch_) {
    permutation_ = Permutation(options_.dealing.images(),
                               CounterRandom(options_.seed, absl::StrCat("shuffle/", epoch)));
    epoch_ = epoch;
  }
  std::vector<ImageToRead> batch(options_.dealing.batch_size());
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].index = permutation_[share->first + i * share->stride];
    if (!options_.augment) continue;
    // The stream depends on the image, not on worker or position, so that an image is augmented in
    // the same way whichever worker reads it.
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

}  // namespace evenshard
