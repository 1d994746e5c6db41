#ifndef EVENSHARD_WORKER_DATA_ORDER_DEALING_H_
#define EVENSHARD_WORKER_DATA_ORDER_DEALING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/view.pb.h"

namespace evenshard {

// Deals out the images of a data set to the workers of a run. It follows from the number of images,
// the batch size and the list of worker sets alone, so all workers that know the same worker sets
// agree on it.
//
// In each epoch the images have an order of their own, in which the iterations consume them: an
// iteration with a worker set of n workers takes the n * batch_size images that come next. Member j
// of the worker set reads those at the positions first + j, first + j + n, first + j + 2n, ..., so
// that the batches of an iteration together are the batch of a single worker with an n times larger
// batch size. When fewer images are left than an iteration needs, they are dropped and the next
// epoch begins. So however the worker set changes, an epoch deals out no image twice.
//
// Takes time in proportion to the number of worker sets, not to that of iterations. Immutable after
// creation.
class Dealing {
 public:
  struct Options {
    int64_t images = 1;
    int64_t batch_size = 1;
    std::vector<WorkerSet> worker_sets;  // as in View::worker_set
  };

  // The positions first + i * stride, for i from 0 to batch_size - 1, in an epoch's order.
  struct Share {
    int64_t epoch = 0;
    int64_t first = 0;
    int64_t stride = 1;

    friend bool operator==(const Share&, const Share&) = default;
  };

  // Errors: INVALID_ARGUMENT if there is no worker set, if the first does not begin at iteration 0,
  // if their iterations or a worker set's ranks do not ascend, if a worker set is empty, or if
  // there are fewer images than one batch for each of its ranks.
  static absl::StatusOr<Dealing> Create(const Options& options);

  int64_t batch_size() const { return batch_size_; }
  int64_t images() const { return images_; }

  // Returns what a rank reads in an iteration, or nothing if its worker set does not have the rank.
  std::optional<Share> ShareOf(int rank, int64_t iteration) const;
  // Returns the epoch that an iteration is in. The first one is 0.
  int64_t EpochAt(int64_t iteration) const;
  // Returns the lowest rank of an iteration's worker set.
  int LowestRank(int64_t iteration) const;
  // Returns the number of iterations of the first `epochs` epochs. REQUIRES: epochs >= 1.
  int64_t IterationsOf(int64_t epochs) const;

  // Returns an iteration before which both deal in the same way; the largest integer if they never
  // differ. REQUIRES: both are of the same images and batch size.
  int64_t FirstDifference(const Dealing& other) const;

 private:
  // The iterations of one worker set.
  struct Segment {
    int64_t from = 0;
    std::vector<uint32_t> ranks;
    // Where the images of the first iteration begin, or the next epoch if too few are left.
    int64_t epoch = 0;
    int64_t position = 0;
    int64_t global_batch = 1;  // the images of an iteration

    friend bool operator==(const Segment&, const Segment&) = default;
  };
  struct Place {
    int64_t epoch;
    int64_t position;
  };

  Dealing(int64_t images, int64_t batch_size) : images_(images), batch_size_(batch_size) {}

  void Append(const WorkerSet& worker_set);
  const Segment& SegmentAt(int64_t iteration) const;
  Place PlaceAt(const Segment& segment, int64_t iteration) const;

  int64_t images_;
  int64_t batch_size_;
  std::vector<Segment> segments_;  // at least one; they begin at different iterations, in order
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_ORDER_DEALING_H_
