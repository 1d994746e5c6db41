#include "worker/data/batch_loader.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {
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
  if (batch >= end_) {
    return absl::OutOfRangeError(
        absl::StrCat("there is no batch ", batch, ", only those below ", end_));
  }
  if (batch != std::exchange(next_, batch + 1)) {
    TakeBack(std::numeric_limits<int64_t>::min());
    given_ = batch;
  }
  // The memory of the batch that the last call returned is free now.
  const int64_t slots = static_cast<int64_t>(memory_.size());
  for (; given_ < std::min(batch + slots, end_); ++given_) {
    // No lock is held, since this may permute a whole epoch.
    std::vector<ImageToRead> images = order_(given_);
    const bool has_images = !images.empty();
    absl::MutexLock lock(&mutex_);
    progress_[Slot(given_)] = {.images = std::move(images)};
    if (has_images) waiting_.push_back(given_);
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

void BatchLoader::Redeal(int64_t from, BatchOrder order, int64_t end) {
  TakeBack(from);
  given_ = std::min(given_, std::max(from, next_));
  order_ = std::move(order);
  end_ = end;
}

void BatchLoader::TakeBack(int64_t from) {
  absl::MutexLock lock(&mutex_);
  waiting_.erase(std::lower_bound(waiting_.begin(), waiting_.end(), from), waiting_.end());
  const auto idle = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return reading_ == 0; };
  mutex_.Await(absl::Condition(&idle));
}

std::vector<absl::Span<float>> BatchLoader::buffers() {
  std::vector<absl::Span<float>> buffers;
  for (Memory& memory : memory_) buffers.push_back(memory.images.span());
  return buffers;
}

void BatchLoader::ReadAhead() {
  absl::MutexLock lock(&mutex_);
  while (!stopped_) {
    ReadImage(/*last=*/std::numeric_limits<int64_t>::max());
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

}  // namespace evenshard
