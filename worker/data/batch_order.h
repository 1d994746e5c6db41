#ifndef PS_WORKER_DATA_BATCH_ORDER_H_
#define PS_WORKER_DATA_BATCH_ORDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/random.h"

namespace ps {

// An image of a data set, and what draws its augmentation where it has one.
struct ImageToRead {
  int64_t index = 0;
  std::optional<CounterRandom> augment;
};

// The images that batch 0, 1, ... is made of, in their order.
using BatchOrder = std::function<std::vector<ImageToRead>(int64_t batch)>;

// A worker's share of a data set to train on. Every epoch is a new permutation of all
// images, the same in every worker because it follows from (seed, epoch) alone; rank r of
// W takes its positions r, r + W, r + 2W, ... So the batches of all workers at an
// iteration are together the batch of one worker of W times the size. Each worker has the
// same number of batches; the images left over at the end of an epoch are dropped from
// it. Not thread-safe.
class ShuffledOrder {
 public:
  struct Options {
    int64_t images = 1;  // of the data set: at least workers * batch_size
    int rank = 0;
    int workers = 1;
    int64_t batch_size = 1;
    uint64_t seed = 1;
    // With random numbers for every image: a pure function of (seed, epoch, image).
    bool augment = false;
  };

  explicit ShuffledOrder(const Options& options);

  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // The batch of an iteration, in epoch iteration / batches_per_epoch().
  std::vector<ImageToRead> operator()(int64_t iteration);

 private:
  const Options options_;
  const int64_t batches_per_epoch_;
  int64_t epoch_ = -1;  // of permutation_
  std::vector<uint32_t> permutation_;
};

// All images of a data set in its order, `batch_size` at a time; the last batch has what
// is left of them.
BatchOrder SequentialOrder(int64_t images, int64_t batch_size);

}  // namespace ps

#endif  // PS_WORKER_DATA_BATCH_ORDER_H_
