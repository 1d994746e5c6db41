#include "worker/data/batch_loader.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/worker/data/formats/fake_dataset.h"
#include "tests/worker/data/order/worker_sets.h"

namespace evenshard {
namespace {

constexpr Shape3 kShape = {1, 1, 2};

// Counts its reads, and calls a function before each.
class WatchedDataset : public FakeDataset {
 public:
  explicit WatchedDataset(int64_t size, std::function<void(int64_t index)> before_read = {})
      : FakeDataset(size, kShape, /*shows_random=*/true), before_read_(std::move(before_read)) {}

  absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                    int32_t* label) const override {
    if (before_read_) before_read_(index);
    const absl::Status read = FakeDataset::Read(index, augment, image, label);
    absl::MutexLock lock(&mutex_);
    ++reads_;
    return read;
  }

  int64_t reads() const {
    absl::MutexLock lock(&mutex_);
    return reads_;
  }
  // Waits until there were `count` reads. Returns false after a minute.
  bool AwaitReads(int64_t count) const {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return reads_ >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), absl::Minutes(1));
  }

 private:
  const std::function<void(int64_t)> before_read_;
  mutable absl::Mutex mutex_;
  mutable int64_t reads_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Delays reads differently, so that threads overtake one another.
void Dawdle(int64_t index) {
  for (int64_t i = index * 7919 % 5; i > 0; --i) std::this_thread::yield();
}

std::unique_ptr<BatchLoader> MustCreate(BatchLoader::Options options) {
  auto loader = BatchLoader::Create(std::move(options));
  REQUIRE(loader.ok());
  return *std::move(loader);
}

struct Content {
  std::vector<float> images;
  std::vector<int32_t> labels;
  bool operator==(const Content&) const = default;
};

Content ContentOf(const Batch& batch) {
  return {{batch.images.begin(), batch.images.end()}, {batch.labels.begin(), batch.labels.end()}};
}

Content MustLoad(BatchLoader& loader, int64_t batch) {
  const auto loaded = loader.Load(batch);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  REQUIRE(loaded->size == static_cast<int64_t>(loaded->labels.size()));
  return ContentOf(*loaded);
}

ShuffledOrder OrderOf(const Dataset& dataset, const std::vector<WorkerSet>& worker_sets) {
  const auto dealing =
      Dealing::Create({.images = dataset.size(), .batch_size = 7, .worker_sets = worker_sets});
  REQUIRE(dealing.ok());
  return ShuffledOrder({.dealing = *dealing, .rank = 1, .seed = 3, .augment = true});
}

// Returns options for an augmented data set with four batches of 7 per epoch.
BatchLoader::Options Shuffled(const Dataset& dataset, int threads) {
  return {.dataset = &dataset,
          .order = OrderOf(dataset, {WorkerSetOfAll(2)}),
          .batch_size = 7,
          .threads = threads};
}

TEST_CASE("a batch holds each image of the order with its label") {
  const FakeDataset dataset(11, kShape);
  const int threads = GENERATE(0, 1, 2, 5);
  const auto loader = MustCreate({.dataset = &dataset,
                                  .order = SequentialOrder(11, 4),
                                  .batch_size = 4,
                                  .end = 3,
                                  .threads = threads});
  for (const int64_t round : {0, 1}) {  // like two evaluations in a row
    CAPTURE(threads, round);
    CHECK(MustLoad(*loader, 0).labels == std::vector<int32_t>{0, 1, 2, 3});
    CHECK(MustLoad(*loader, 1).labels == std::vector<int32_t>{4, 5, 6, 7});
    CHECK(MustLoad(*loader, 2) == Content{{8001, 8002, 9001, 9002, 10001, 10002}, {8, 9, 10}});
  }
}

TEST_CASE("batches are the same however many threads read them") {
  const WatchedDataset dataset(60, Dawdle);
  const auto expected = MustCreate(Shuffled(dataset, 0));
  const int threads = GENERATE(1, 2, 5);
  const auto loader = MustCreate(Shuffled(dataset, threads));
  for (int64_t iteration = 0; iteration < 20; ++iteration) {
    CAPTURE(threads, iteration);
    CHECK(MustLoad(*loader, iteration) == MustLoad(*expected, iteration));
  }
}

TEST_CASE("loading goes on at any batch, and where it has been before") {
  const WatchedDataset dataset(60, Dawdle);
  const auto expected = MustCreate(Shuffled(dataset, 0));
  const int threads = GENERATE(1, 2, 5);
  const auto loader = MustCreate(Shuffled(dataset, threads));
  for (const int64_t iteration : {3, 4, 20, 22, 22, 21, 22, 23, 24, 0, 1, 2, 3}) {
    CAPTURE(threads, iteration);
    CHECK(MustLoad(*loader, iteration) == MustLoad(*expected, iteration));
  }
}

TEST_CASE("threads read two batches ahead of the one in use, which stays as it is") {
  const WatchedDataset dataset(60);
  const int threads = GENERATE(1, 2, 5);
  CAPTURE(threads);
  auto loader = MustCreate(Shuffled(dataset, threads));
  for (int64_t iteration = 5; iteration < 8; ++iteration) {
    const auto batch = loader->Load(iteration);
    REQUIRE(batch.ok());
    const Content content = ContentOf(*batch);
    REQUIRE(dataset.AwaitReads(7 * (iteration - 5 + 3)));
    CHECK(ContentOf(*batch) == content);
  }
  loader.reset();
  CHECK(dataset.reads() == 7 * 5);
}

TEST_CASE("from some batch on the order becomes another one") {
  const WatchedDataset dataset(60, Dawdle);
  const std::vector<WorkerSet> before = {WorkerSetOfAll(2)};
  const int64_t from = GENERATE(0, 3, 4, 5, 6, 7, 9);
  const std::vector<WorkerSet> after = {WorkerSetOfAll(2), WorkerSetFrom(from, {1})};
  const int threads = GENERATE(0, 1, 2, 5);
  const auto loader = MustCreate(Shuffled(dataset, threads));
  BatchLoader::Options changed = Shuffled(dataset, 0);
  changed.order = OrderOf(dataset, after);
  const auto old = MustCreate(Shuffled(dataset, 0));
  const auto expected = MustCreate(std::move(changed));
  for (int64_t iteration = 2; iteration < 4; ++iteration) MustLoad(*loader, iteration);
  const auto in_use = loader->Load(4);
  REQUIRE(in_use.ok());
  loader->Redeal(from, OrderOf(dataset, after), /*end=*/12);
  CHECK(ContentOf(*in_use) == MustLoad(*old, 4));
  // Goes on where it is, again with the batch in use, or at the change.
  const int64_t next = GENERATE_COPY(5, 4, from);
  for (int64_t iteration = next; iteration < 12; ++iteration) {
    CAPTURE(threads, from, next, iteration);
    CHECK(MustLoad(*loader, iteration) == MustLoad(*expected, iteration));
  }
  CHECK(absl::IsOutOfRange(loader->Load(12).status()));
}

TEST_CASE("what was read ahead is read again only where the order has changed") {
  const WatchedDataset dataset(60);
  const int threads = GENERATE(1, 2, 5);
  CAPTURE(threads);
  auto loader = MustCreate(Shuffled(dataset, threads));
  MustLoad(*loader, 0);
  REQUIRE(dataset.AwaitReads(7 * 3));
  loader->Redeal(2, OrderOf(dataset, {WorkerSetOfAll(2), WorkerSetFrom(2, {1})}), /*end=*/3);
  MustLoad(*loader, 1);
  MustLoad(*loader, 2);
  loader.reset();
  CHECK(dataset.reads() == 7 * 4);
}

TEST_CASE("a change of the order ends what threads are reading for the old one") {
  absl::Notification reads, go_on;
  WatchedDataset dataset(
      60, [&, first = OrderOf(FakeDataset(60, kShape), {WorkerSetOfAll(2)})(2)[0].index](
              int64_t index) {
        if (index != first || reads.HasBeenNotified()) return;
        reads.Notify();
        go_on.WaitForNotificationWithTimeout(absl::Minutes(1));
      });
  const auto loader = MustCreate(Shuffled(dataset, 2));
  MustLoad(*loader, 0);
  REQUIRE(reads.WaitForNotificationWithTimeout(absl::Minutes(1)));
  std::thread later([&] {
    absl::SleepFor(absl::Milliseconds(20));
    go_on.Notify();
  });
  const std::vector<WorkerSet> after = {WorkerSetOfAll(2), WorkerSetFrom(2, {1})};
  loader->Redeal(2, OrderOf(dataset, after), /*end=*/12);
  CHECK(go_on.HasBeenNotified());
  later.join();
  BatchLoader::Options changed = Shuffled(dataset, 0);
  changed.order = OrderOf(dataset, after);
  const auto expected = MustCreate(std::move(changed));
  for (int64_t i = 1; i < 5; ++i) CHECK(MustLoad(*loader, i) == MustLoad(*expected, i));
}

TEST_CASE("a batch of no images is loaded like any other") {
  const FakeDataset dataset(60, kShape);
  const int threads = GENERATE(0, 1, 5);
  BatchLoader::Options options = Shuffled(dataset, threads);
  options.order =
      OrderOf(dataset, {WorkerSetOfAll(2), WorkerSetFrom(1, {0}), WorkerSetFrom(3, {1})});
  const auto loader = MustCreate(std::move(options));
  for (int64_t i = 0; i < 5; ++i) {
    CHECK(MustLoad(*loader, i).labels.size() == (i == 1 || i == 2 ? 0 : 7));
  }
}

TEST_CASE("without threads nothing is read ahead") {
  const WatchedDataset dataset(60);
  const auto loader = MustCreate(Shuffled(dataset, 0));
  MustLoad(*loader, 0);
  CHECK(dataset.reads() == 7);
}

TEST_CASE("nothing is read beyond the end, and each image once") {
  const WatchedDataset dataset(60);
  const int threads = GENERATE(0, 1, 2, 5);
  CAPTURE(threads);
  BatchLoader::Options options = Shuffled(dataset, threads);
  options.end = 5;
  auto loader = MustCreate(std::move(options));
  for (int64_t iteration = 0; iteration < 5; ++iteration) MustLoad(*loader, iteration);
  CHECK(loader->Load(5).status() ==
        absl::OutOfRangeError("there is no batch 5, only those below 5"));
  loader.reset();
  CHECK(dataset.reads() == 7 * 5);
}

TEST_CASE("an image that cannot be read fails its batch only") {
  FakeDataset dataset(16, kShape);
  dataset.MakeUnreadable(9);
  const int threads = GENERATE(0, 1, 2, 5);
  CAPTURE(threads);
  const auto loader = MustCreate({.dataset = &dataset,
                                  .order = SequentialOrder(16, 4),
                                  .batch_size = 4,
                                  .end = 4,
                                  .threads = threads});
  for (const int64_t round : {0, 1}) {
    CAPTURE(round);
    MustLoad(*loader, 0);
    MustLoad(*loader, 1);
    CHECK(loader->Load(2).status() == absl::DataLossError("image 9 is damaged"));
    CHECK(MustLoad(*loader, 3).labels == std::vector<int32_t>{12, 13, 14, 15});
  }
}

TEST_CASE("if several images cannot be read, the error names the first of the batch") {
  absl::Notification last_is_read;
  bool waited = true;
  WatchedDataset dataset(12, [&](int64_t index) {
    if (index == 11) last_is_read.Notify();
    if (index == 8) waited = last_is_read.WaitForNotificationWithTimeout(absl::Minutes(1));
  });
  for (const int64_t index : {8, 10, 11}) dataset.MakeUnreadable(index);
  const auto loader = MustCreate({.dataset = &dataset,
                                  .order = SequentialOrder(12, 4),
                                  .batch_size = 4,
                                  .end = 3,
                                  .threads = 2});
  MustLoad(*loader, 0);
  MustLoad(*loader, 1);
  CHECK(loader->Load(2).status() == absl::DataLossError("image 8 is damaged"));
  CHECK(waited);
}

TEST_CASE("a loader ends in the middle of its reading") {
  constexpr int64_t kBatch = 20000;
  const int threads = GENERATE(1, 2, 5);
  CAPTURE(threads);
  const WatchedDataset dataset(kBatch, [](int64_t index) {
    if (index > 0) absl::SleepFor(absl::Milliseconds(1));
  });
  auto loader = MustCreate({.dataset = &dataset,
                            .order =
                                [](int64_t batch) {
                                  return batch == 0 ? std::vector<ImageToRead>(1)
                                                    : SequentialOrder(kBatch, kBatch)(0);
                                },
                            .batch_size = kBatch,
                            .threads = threads});
  MustLoad(*loader, 0);
  REQUIRE(dataset.AwaitReads(10));
  loader.reset();
  CHECK(dataset.reads() < kBatch);
}

TEST_CASE("a loader ends without having been asked for anything") {
  const WatchedDataset dataset(60);
  MustCreate(Shuffled(dataset, 5)).reset();
  CHECK(dataset.reads() == 0);
}

TEST_CASE("all batches lie in buffers that stay where they are") {
  const FakeDataset dataset(60, kShape);
  const int threads = GENERATE(0, 1, 5);
  CAPTURE(threads);
  const auto loader = MustCreate(Shuffled(dataset, threads));
  const std::vector<absl::Span<float>> buffers = loader->buffers();
  CHECK(buffers.size() == (threads == 0 ? 1 : 3));
  for (const absl::Span<float> buffer : buffers) {
    CHECK(static_cast<int64_t>(buffer.size()) == 7 * kShape.size());
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 4096 == 0);
  }
  for (const int64_t iteration : {0, 1, 2, 3, 4, 5, 17, 18, 2}) {
    CAPTURE(iteration);
    const auto batch = loader->Load(iteration);
    REQUIRE(batch.ok());
    int holders = 0;
    for (const absl::Span<float> buffer : buffers) holders += buffer.data() == batch->images.data();
    CHECK(holders == 1);
  }
  const std::vector<absl::Span<float>> after = loader->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) CHECK(after[i].data() == buffers[i].data());
}

TEST_CASE("batches for which there is no memory are an error") {
  const FakeDataset dataset(1, {1 << 20, 1 << 20, 1});
  const auto loader = BatchLoader::Create(
      {.dataset = &dataset, .order = SequentialOrder(1, 65536), .batch_size = 65536});
  CHECK(absl::IsResourceExhausted(loader.status()));
}

}  // namespace
}  // namespace evenshard
