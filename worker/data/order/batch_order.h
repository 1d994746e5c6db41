#ifndef EVENSHARD_WORKER_DATA_ORDER_BATCH_ORDER_H_
#define EVENSHARD_WORKER_DATA_ORDER_BATCH_ORDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/random.h"
#include "worker/data/order/dealing.h"

namespace evenshard {

// An image of a data set, and the random numbers of its augmentation, if it is augmented.
struct ImageToRead {
  int64_t index = 0;
  std::optional<CounterRandom> augment;
};

// Returns the images of batch 0, 1, ..., in order.
using BatchOrder = std::function<std::vector<ImageToRead>(int64_t batch)>;

// A worker's share of a data set to train on, as dealt by a Dealing. The order of an epoch's images
// is a permutation that follows from (seed, epoch) alone, so all workers agree on it. Not
// thread-safe.
class ShuffledOrder {
 public:
  struct Options {
    Dealing dealing;
    int rank = 0;
    uint64_t seed = 1;
    // Whether to give each image random numbers, which are a pure function of (seed, epoch, image).
    bool augment = false;
  };

  explicit ShuffledOrder(const Options& options) : options_(options) {}

  // Returns the batch of an iteration. It is empty if the iteration's worker set does not have the
  // rank.
  std::vector<ImageToRead> operator()(int64_t iteration);

 private:
  const Options options_;
  int64_t epoch_ = -1;  // the epoch of permutation_
  std::vector<uint32_t> permutation_;
};

// Returns all images of a data set in its order, `batch_size` at a time. The last batch may be
// smaller.
BatchOrder SequentialOrder(int64_t images, int64_t batch_size);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_ORDER_BATCH_ORDER_H_
