#ifndef PS_WORKER_DATA_BATCH_ORDER_H_
#define PS_WORKER_DATA_BATCH_ORDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/random.h"

namespace ps {

// An image of a data set, and the random numbers of its augmentation, if it is augmented.
struct ImageToRead {
  int64_t index = 0;
  std::optional<CounterRandom> augment;
};

// Returns the images of batch 0, 1, ..., in order.
using BatchOrder = std::function<std::vector<ImageToRead>(int64_t batch)>;

// A worker's share of a data set to train on. Each epoch is a new permutation of all images. It
// follows from (seed, epoch) alone, so all workers agree on it. Rank r of W workers takes the
// positions r, r + W, r + 2W, ..., so the batches of all workers in an iteration together are the
// batch of a single worker with a W times larger batch size. All workers have the same number of
// batches per epoch; images left over at the end of an epoch are dropped from it. Not thread-safe.
class ShuffledOrder {
 public:
  struct Options {
    int64_t images = 1;  // in the data set; at least workers * batch_size
    int rank = 0;
    int workers = 1;
    int64_t batch_size = 1;
    uint64_t seed = 1;
    // Whether to give each image random numbers, which are a pure function of (seed, epoch, image).
    bool augment = false;
  };

  explicit ShuffledOrder(const Options& options);

  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Returns the batch of an iteration, which is in epoch iteration / batches_per_epoch().
  std::vector<ImageToRead> operator()(int64_t iteration);

 private:
  const Options options_;
  const int64_t batches_per_epoch_;
  int64_t epoch_ = -1;  // the epoch of permutation_
  std::vector<uint32_t> permutation_;
};

// Returns all images of a data set in its order, `batch_size` at a time. The last batch may be
// smaller.
BatchOrder SequentialOrder(int64_t images, int64_t batch_size);

}  // namespace ps

#endif  // PS_WORKER_DATA_BATCH_ORDER_H_
