#ifndef PS_WORKER_DATA_BATCH_LOADER_H_
#define PS_WORKER_DATA_BATCH_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/float_buffer.h"
#include "worker/data/batch.h"
#include "worker/data/batch_order.h"
#include "worker/data/dataset.h"

namespace ps {

// Reads a data set batch by batch. With threads it reads ahead: while one batch is in use,
// they fill the next two, image by image, each the first that nobody has taken yet. A
// batch is the same whatever the number of threads.
//
// For one thread at a time; its own threads end with it, each after the image that it is
// reading.
class BatchLoader {
 public:
  struct Options {
    const Dataset* dataset = nullptr;  // must outlive the loader
    // Each batch: at least one image, at most `batch_size`. Called by Load alone.
    BatchOrder order;
    int64_t batch_size = 1;
    // No batch from this one on is read.
    int64_t end = std::numeric_limits<int64_t>::max();
    int threads = 0;  // 0: Load reads
  };

  // Errors: RESOURCE_EXHAUSTED for the batches' memory.
  static absl::StatusOr<std::unique_ptr<BatchLoader>> Create(Options options);
  ~BatchLoader();

  // Batch `batch` of the order. Valid until the next call. Any may be asked for, but it is
  // those after the last one that are read ahead. Waits until all of the batch is read, and
  // reads beside the threads until then.
  // Errors: of its images that cannot be read, the first one's, as Dataset::Read;
  // OUT_OF_RANGE at Options::end.
  absl::StatusOr<Batch> Load(int64_t batch);

  // The memory that every batch's images lie in: page-aligned, the same for the loader's
  // life. Each is one batch's, of batch_size images.
  std::vector<absl::Span<float>> buffers();

 private:
  struct Memory {
    FloatBuffer images;
    std::vector<int32_t> labels;
  };
  // How far the batch in a memory is read.
  struct Progress {
    std::vector<ImageToRead> images;
    size_t taken = 0;  // by threads; they read the first ones first
    size_t read = 0;
    size_t failed = std::numeric_limits<size_t>::max();  // the first image that `failure` is of
    absl::Status failure = {};
  };

  explicit BatchLoader(Options options) : options_(std::move(options)) {}

  // Which memory a batch is read into.
  size_t Slot(int64_t batch) const { return batch % memory_.size(); }
  // What each thread does.
  void ReadAhead();
  // Reads the next image that waits, if its batch is `last` or an earlier one; otherwise
  // returns false.
  bool ReadImage(int64_t last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || !waiting_.empty(); }

  // Constant after construction, but for what the memory holds.
  const Options options_;
  std::vector<Memory> memory_;
  std::vector<std::thread> threads_;

  int64_t next_ = -1;  // the batch after the last one asked for; Load's alone

  absl::Mutex mutex_;
  std::vector<Progress> progress_ ABSL_GUARDED_BY(mutex_);  // as memory_
  // Batches with images that nobody has taken yet, in their order.
  std::deque<int64_t> waiting_ ABSL_GUARDED_BY(mutex_);
  int reading_ ABSL_GUARDED_BY(mutex_) = 0;  // images at this moment
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ps

#endif  // PS_WORKER_DATA_BATCH_LOADER_H_
