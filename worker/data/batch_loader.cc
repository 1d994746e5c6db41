#include "worker/data/batch_loader.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace ps {
namespace {

constexpr int kBatchesAhead = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<BatchLoader>> BatchLoader::Create(Options options) {
  auto loader = absl::WrapUnique(new BatchLoader(std::move(options)));
  const int64_t floats = loader->options_.batch_size * loader->options_.dataset->shape().size();
  const int threads = loader->options_.threads;
  const int batches = threads == 0 ? 1 : 1 + kBatchesAhead;
  for (int i = 0; i < batches; ++i) {
    ASSIGN_OR_RETURN(FloatBuffer images, FloatBuffer::Allocate(floats));
    loader->memory_.push_back(
        {std::move(images), std::vector<int32_t>(loader->options_.batch_size)});
  }
  {
    absl::MutexLock lock(&loader->mutex_);
    loader->progress_.resize(batches);
  }
  for (int i = 0; i < threads; ++i) {
    loader->threads_.emplace_back([loader = loader.get()] { loader->ReadAhead(); });
  }
  return loader;
}

BatchLoader::~BatchLoader() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<Batch> BatchLoader::Load(int64_t batch) {
  if (batch >= options_.end) {
    return absl::OutOfRangeError(
        absl::StrCat("there is no batch ", batch, ", only those below ", options_.end));
  }
  const int64_t slots = static_cast<int64_t>(memory_.size());
  // The last call gave the threads all but one of the batches from this one on. The memory of the
  // batch that it returned is free now.
  int64_t given = batch + slots - 1;
  if (batch != std::exchange(next_, batch + 1)) {
    absl::MutexLock lock(&mutex_);
    waiting_.clear();
    const auto idle = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return reading_ == 0; };
    mutex_.Await(absl::Condition(&idle));
    given = batch;
  }
  for (; given < std::min(batch + slots, options_.end); ++given) {
    // No lock is held, since this may permute a whole epoch.
    std::vector<ImageToRead> images = options_.order(given);
    absl::MutexLock lock(&mutex_);
    progress_[Slot(given)] = {.images = std::move(images)};
    waiting_.push_back(given);
  }

  absl::MutexLock lock(&mutex_);
  while (ReadImage(batch)) {
  }
  const Progress& progress = progress_[Slot(batch)];
  const auto is_read = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return progress.read == progress.images.size();
  };
  mutex_.Await(absl::Condition(&is_read));
  RETURN_IF_ERROR(progress.failure);
  const Memory& memory = memory_[Slot(batch)];
  const size_t size = progress.images.size();
  return Batch{.size = static_cast<int64_t>(size),
               .images = memory.images.span().first(size * options_.dataset->shape().size()),
               .labels = absl::MakeConstSpan(memory.labels).first(size)};
}

std::vector<absl::Span<float>> BatchLoader::buffers() {
  std::vector<absl::Span<float>> buffers;
  for (Memory& memory : memory_) buffers.push_back(memory.images.span());
  return buffers;
}

void BatchLoader::ReadAhead() {
  absl::MutexLock lock(&mutex_);
  while (!stopped_) {
    ReadImage(/*last=*/options_.end);
    mutex_.Await(absl::Condition(this, &BatchLoader::HasWork));
  }
}

bool BatchLoader::ReadImage(int64_t last) {
  if (waiting_.empty() || waiting_.front() > last) return false;
  const size_t slot = Slot(waiting_.front());
  Progress& progress = progress_[slot];
  const size_t position = progress.taken++;
  if (progress.taken == progress.images.size()) waiting_.pop_front();
  const ImageToRead image = progress.images[position];
  ++reading_;
  mutex_.Unlock();

  Memory& memory = memory_[slot];
  const int64_t floats = options_.dataset->shape().size();
  const absl::Status read = options_.dataset->Read(
      image.index, image.augment.has_value() ? &*image.augment : nullptr,
      memory.images.span().subspan(position * floats, floats), &memory.labels[position]);

  mutex_.Lock();
  --reading_;
  ++progress.read;
  if (!read.ok() && position < progress.failed) {
    progress.failed = position;
    progress.failure = read;
  }
  return true;
}

}  // namespace ps
