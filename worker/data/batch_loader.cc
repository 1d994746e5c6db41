#include "worker/data/batch_loader.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "worker/data/permutation.h"

namespace ps {

BatchLoader::BatchLoader(const Dataset* dataset, const Options& options)
    : dataset_(dataset),
      options_(options),
      batches_per_epoch_(dataset->size() / (options.workers * options.batch_size)),
      images_(options.batch_size * dataset->shape().size()),
      labels_(options.batch_size) {}

absl::StatusOr<Batch> BatchLoader::Load(int64_t iteration) {
  const int64_t epoch = iteration / batches_per_epoch_;
  if (epoch != epoch_) {
    order_ = Permutation(dataset_->size(),
                         CounterRandom(options_.seed, absl::StrCat("shuffle/", epoch)));
    epoch_ = epoch;
  }
  const int64_t first = iteration % batches_per_epoch_ * options_.batch_size;
  const int64_t floats = dataset_->shape().size();
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const uint32_t index = order_[options_.rank + (first + i) * options_.workers];
    // By image, not by worker or position: an augmented image is the same whoever reads it.
    const CounterRandom augment(options_.seed, absl::StrCat("augment/", epoch, "/", index));
    const absl::Status read =
        dataset_->Read(index, options_.augment ? &augment : nullptr,
                       absl::MakeSpan(images_).subspan(i * floats, floats), &labels_[i]);
    if (!read.ok()) return read;
  }
  return Batch{.size = options_.batch_size, .images = images_, .labels = labels_};
}

}  // namespace ps
