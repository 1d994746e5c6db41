#ifndef PS_WORKER_DATA_BATCH_LOADER_H_
#define PS_WORKER_DATA_BATCH_LOADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"

namespace ps {

// A worker's share of a data set, batch by batch. Every epoch is a new permutation
// of all images, the same in every worker because it follows from (seed, epoch)
// alone; rank r of W takes its positions r, r + W, r + 2W, ... So the batches of all
// workers at an iteration are together the batch of one worker of W times the size.
// Each worker has the same number of batches; the images left over at the end of an
// epoch are dropped from it. Not thread-safe.
class BatchLoader {
 public:
  struct Options {
    int rank = 0;
    int workers = 1;
    int64_t batch_size = 1;
    uint64_t seed = 1;
    // Whether Dataset::Read gets random numbers: a pure function of (seed, epoch, image).
    bool augment = false;
  };

  // `dataset` must hold at least workers * batch_size images and outlive the loader.
  BatchLoader(const Dataset* dataset, const Options& options);

  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // The batch of `iteration` (0, 1, ...), in epoch iteration / batches_per_epoch().
  // Valid until the next call. Errors: as Dataset::Read.
  absl::StatusOr<Batch> Load(int64_t iteration);

 private:
  const Dataset* const dataset_;
  const Options options_;
  const int64_t batches_per_epoch_;
  int64_t epoch_ = -1;  // of order_
  std::vector<uint32_t> order_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
};

}  // namespace ps

#endif  // PS_WORKER_DATA_BATCH_LOADER_H_
