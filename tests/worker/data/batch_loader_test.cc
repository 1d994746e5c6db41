#include "worker/data/batch_loader.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/worker/data/fake_dataset.h"

namespace ps {
namespace {

using Options = BatchLoader::Options;
constexpr Shape3 kShape = {1, 1, 2};

// The images that a rank sees in an epoch, in order.
std::vector<int32_t> Epoch(BatchLoader& loader, int64_t epoch) {
  std::vector<int32_t> seen;
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const auto batch = loader.Load(epoch * loader.batches_per_epoch() + i);
    REQUIRE(batch.ok());
    seen.insert(seen.end(), batch->labels.begin(), batch->labels.end());
  }
  return seen;
}

TEST_CASE("over all workers an epoch holds each image at most once, equally many each") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 50; ++round) {
    const int workers = static_cast<int>(draw(1, 9));
    const int64_t batch_size = draw(1, 20);
    const int64_t size = draw(workers * batch_size, 5 * workers * batch_size);
    INFO(size << " images, " << workers << " workers, batches of " << batch_size);
    const FakeDataset dataset(size, kShape);
    const uint64_t shuffle_seed = random();
    std::set<int32_t> seen;
    const int64_t batches = size / (workers * batch_size);
    for (int rank = 0; rank < workers; ++rank) {
      BatchLoader loader(&dataset, {rank, workers, batch_size, shuffle_seed});
      REQUIRE(loader.batches_per_epoch() == batches);
      const std::vector<int32_t> share = Epoch(loader, 1);
      CHECK(static_cast<int64_t>(share.size()) == batches * batch_size);
      seen.insert(share.begin(), share.end());
    }
    CHECK(static_cast<int64_t>(seen.size()) == workers * batches * batch_size);
    CHECK(*seen.begin() >= 0);
    CHECK(*seen.rbegin() < size);
  }
}

TEST_CASE("one batch over W workers is the batch of one worker that is W times as large") {
  const FakeDataset dataset(100, kShape);
  BatchLoader whole(&dataset, {0, 1, 12, 9});
  for (const int64_t iteration : {0, 3, 7, 8, 20}) {
    const auto expected = whole.Load(iteration);
    REQUIRE(expected.ok());
    std::vector<int32_t> together(12);
    for (int rank = 0; rank < 3; ++rank) {
      BatchLoader share(&dataset, {rank, 3, 4, 9});
      const auto batch = share.Load(iteration);
      REQUIRE(batch.ok());
      for (int i = 0; i < 4; ++i) together[i * 3 + rank] = batch->labels[i];
    }
    CHECK(absl::MakeConstSpan(together) == expected->labels);
  }
}

TEST_CASE("every epoch is a new order, the same for equal seeds") {
  const FakeDataset dataset(60, kShape);
  BatchLoader loader(&dataset, {1, 2, 5, 3}), same(&dataset, {1, 2, 5, 3}),
      other(&dataset, {1, 2, 5, 4});
  std::set<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const std::vector<int32_t> order = Epoch(loader, epoch);
    CHECK(Epoch(same, epoch) == order);
    CHECK(Epoch(other, epoch) != order);
    orders.insert(order);
  }
  CHECK(orders.size() == 4);
  // Going back gives the same again, as a restarted worker needs.
  CHECK(orders.count(Epoch(loader, 0)) == 1);
}

TEST_CASE("a batch holds each image with its label") {
  const FakeDataset dataset(10, kShape);
  BatchLoader loader(&dataset, {0, 1, 4, 1});
  const auto batch = loader.Load(1);
  REQUIRE(batch.ok());
  CHECK(batch->size == 4);
  REQUIRE(batch->images.size() == 8);
  REQUIRE(batch->labels.size() == 4);
  for (int i = 0; i < 4; ++i) {
    CHECK(batch->images[2 * i] == 1000 * batch->labels[i] + 1);
    CHECK(batch->images[2 * i + 1] == 1000 * batch->labels[i] + 2);
  }
}

// The random number that each image saw in an epoch, over all ranks.
std::map<int32_t, float> RandomByImage(int workers, bool augment, uint64_t seed, int64_t epoch) {
  const FakeDataset dataset(24, kShape, /*shows_random=*/true);
  std::map<int32_t, float> seen;
  for (int rank = 0; rank < workers; ++rank) {
    BatchLoader loader(&dataset, {rank, workers, 2, seed, augment});
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      const auto batch = loader.Load(epoch * loader.batches_per_epoch() + i);
      REQUIRE(batch.ok());
      for (int k = 0; k < 2; ++k) {
        seen[batch->labels[k]] = batch->images[2 * k] - 1000.0f * batch->labels[k] - 1;
      }
    }
  }
  return seen;
}

TEST_CASE("an augmentation follows from seed, epoch and image, not from the workers") {
  const std::map<int32_t, float> one = RandomByImage(1, true, 5, 2);
  CHECK(one.size() == 24);
  CHECK(RandomByImage(3, true, 5, 2) == one);
  CHECK(RandomByImage(1, true, 6, 2) != one);
  CHECK(RandomByImage(1, true, 5, 3) != one);
  std::set<float> different;
  for (const auto& [image, random] : one) different.insert(random);
  CHECK(different.size() > 20);
}

TEST_CASE("without augmentation a data set gets no random numbers") {
  for (const auto& [image, random] : RandomByImage(1, false, 5, 0)) CHECK(random == 0);
}

TEST_CASE("an image that cannot be read fails its batch with the data set's error") {
  FakeDataset dataset(8, kShape);
  dataset.MakeUnreadable(7);
  BatchLoader loader(&dataset, {0, 1, 8, 1});
  const auto batch = loader.Load(0);
  CHECK(batch.status() == absl::DataLossError("image 7 is damaged"));
}

}  // namespace
}  // namespace ps
