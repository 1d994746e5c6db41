#ifndef EVENSHARD_WORKER_DATA_BATCH_LOADER_H_
#define EVENSHARD_WORKER_DATA_BATCH_LOADER_H_

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
#include "common/base/float_buffer.h"
#include "worker/data/batch.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/order/batch_order.h"

namespace evenshard {

// Reads a data set batch by batch. If it has threads, they read ahead: while one batch is in use,
// they fill the next two, image by image, and each thread takes the first image that is not taken
// yet. A batch does not depend on the number of threads.
//
// May be used by one thread at a time. The destructor waits until each of the loader's threads has
// finished the image that it is reading.
class BatchLoader {
 public:
  struct Options {
    const Dataset* dataset = nullptr;  // must outlive the loader
    // Gives the images of each batch, at most `batch_size`. Only Load calls it.
    BatchOrder order;
    int64_t batch_size = 1;
    // Batches from this one on are not read.
    int64_t end = std::numeric_limits<int64_t>::max();
    int threads = 0;  // 0: Load reads all images itself
  };

  // Errors: RESOURCE_EXHAUSTED if the batches' memory cannot be allocated.
  static absl::StatusOr<std::unique_ptr<BatchLoader>> Create(Options options);
  ~BatchLoader();

  // Returns batch `batch` of the order, which stays valid until the next call. Any batch may be
  // asked for, but the batches that are read ahead are those that follow the last one. Blocks until
  // the whole batch is read, and helps the threads to read it. Errors: if images cannot be read,
  // the error of the first of them, as for Dataset::Read; OUT_OF_RANGE at and beyond Options::end.
  absl::StatusOr<Batch> Load(int64_t batch);

  // Replaces the order, and its end, from batch `from` on. Batches from there on that were read
  // ahead are thrown away. The batch in use stays as it is until the next Load, even if it is one
  // of them. REQUIRES: both orders are the same before `from`.
  void Redeal(int64_t from, BatchOrder order, int64_t end);

  // Returns the memory that the images of all batches lie in. Each buffer holds one batch of
  // batch_size images. The buffers are page-aligned, and do not change during the loader's life.
  std::vector<absl::Span<float>> buffers();

 private:
  struct Memory {
    FloatBuffer images;
    std::vector<int32_t> labels;
  };
  // How much of the batch in a memory has been read.
  struct Progress {
    std::vector<ImageToRead> images;
    size_t taken = 0;  // by threads, which take the images in order
    size_t read = 0;
    // The position of the image that `failure` belongs to.
    size_t failed = std::numeric_limits<size_t>::max();
    absl::Status failure = {};
  };

  explicit BatchLoader(Options options)
      : options_(std::move(options)), order_(options_.order), end_(options_.end) {}

  // Returns the index of the memory that a batch is read into.
  size_t Slot(int64_t batch) const { return batch % memory_.size(); }
  // The main function of each thread.
  void ReadAhead();
  // Takes back the batches from `from` on that were given to the threads. What the threads have
  // taken of others is read by then.
  void TakeBack(int64_t from);
  // Reads the next image that is not taken, if its batch is not after `last`. Returns false if
  // there is none.
  bool ReadImage(int64_t last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || !waiting_.empty(); }

  // Constant after construction, except for the contents of the memory.
  const Options options_;
  std::vector<Memory> memory_;
  std::vector<std::thread> threads_;

  // Used by the one thread that calls Load and Redeal.
  BatchOrder order_;
  int64_t end_;
  int64_t next_ = -1;   // the batch after the last one asked for
  int64_t given_ = -1;  // the batches from next_ to before this one were given to the threads

  absl::Mutex mutex_;
  std::vector<Progress> progress_ ABSL_GUARDED_BY(mutex_);  // one per element of memory_
  // The batches with images that are not taken yet, in order.
  std::deque<int64_t> waiting_ ABSL_GUARDED_BY(mutex_);
  int reading_ ABSL_GUARDED_BY(mutex_) = 0;  // number of images being read
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_BATCH_LOADER_H_
