#include "worker/data/order/batch_order.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/worker/data/order/worker_sets.h"
#include "worker/data/order/permutation.h"

namespace evenshard {
namespace {

// The share of one of `workers` workers that all train from the beginning to the end.
struct Options {
  int64_t images = 1;
  int rank = 0;
  int workers = 1;
  int64_t batch_size = 1;
  uint64_t seed = 1;
  bool augment = false;
};

ShuffledOrder OrderOf(const Options& options) {
  const auto dealing = Dealing::Create({.images = options.images,
                                        .batch_size = options.batch_size,
                                        .worker_sets = {WorkerSetOfAll(options.workers)}});
  REQUIRE(dealing.ok());
  return ShuffledOrder({.dealing = *dealing,
                        .rank = options.rank,
                        .seed = options.seed,
                        .augment = options.augment});
}

std::vector<int64_t> Indices(const std::vector<ImageToRead>& batch) {
  std::vector<int64_t> indices;
  for (const ImageToRead& image : batch) indices.push_back(image.index);
  return indices;
}

// Returns the images that a rank reads in an epoch of `batches` batches, in order.
std::vector<int64_t> Epoch(ShuffledOrder& order, int64_t batches, int64_t epoch) {
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < batches; ++i) {
    const std::vector<int64_t> batch = Indices(order(epoch * batches + i));
    seen.insert(seen.end(), batch.begin(), batch.end());
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
    const uint64_t shuffle_seed = random();
    std::set<int64_t> seen;
    const int64_t batches = size / (workers * batch_size);
    for (int rank = 0; rank < workers; ++rank) {
      ShuffledOrder order = OrderOf({size, rank, workers, batch_size, shuffle_seed});
      const std::vector<int64_t> share = Epoch(order, batches, 1);
      CHECK(static_cast<int64_t>(share.size()) == batches * batch_size);
      seen.insert(share.begin(), share.end());
    }
    CHECK(static_cast<int64_t>(seen.size()) == workers * batches * batch_size);
    CHECK(*seen.begin() >= 0);
    CHECK(*seen.rbegin() < size);
  }
}

TEST_CASE("a worker set that never changes reads rank + W * position of each epoch's permutation") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 50; ++round) {
    const int workers = static_cast<int>(draw(1, 9));
    const int rank = static_cast<int>(draw(0, workers - 1));
    const int64_t batch_size = draw(1, 20);
    const int64_t size = draw(workers * batch_size, 5 * workers * batch_size);
    const int64_t batches = size / (workers * batch_size);
    ShuffledOrder order = OrderOf({size, rank, workers, batch_size, 7});
    for (int64_t iteration = 0; iteration < 3 * batches + 1; ++iteration) {
      CAPTURE(size, workers, rank, batch_size, iteration);
      const int64_t epoch = iteration / batches;
      const std::vector<uint32_t> permutation =
          Permutation(size, CounterRandom(7, "shuffle/" + std::to_string(epoch)));
      std::vector<int64_t> expected;
      for (int64_t i = 0; i < batch_size; ++i) {
        const int64_t position = iteration % batches * batch_size + i;
        expected.push_back(permutation[rank + position * workers]);
      }
      CHECK(Indices(order(iteration)) == expected);
    }
  }
}

TEST_CASE("a rank that an iteration's worker set does not have reads nothing in it") {
  const auto dealing =
      Dealing::Create({.images = 60,
                       .batch_size = 5,
                       .worker_sets = {WorkerSetOfAll(3), WorkerSetFrom(4, {0, 2})}});
  REQUIRE(dealing.ok());
  ShuffledOrder order({.dealing = *dealing, .rank = 1});
  CHECK(order(3).size() == 5);
  CHECK(order(4).empty());
}

TEST_CASE("one batch over W workers is the batch of one worker that is W times as large") {
  ShuffledOrder whole = OrderOf({100, 0, 1, 12, 9});
  for (const int64_t iteration : {0, 3, 7, 8, 20}) {
    std::vector<int64_t> together(12);
    for (int rank = 0; rank < 3; ++rank) {
      ShuffledOrder share = OrderOf({100, rank, 3, 4, 9});
      const std::vector<int64_t> batch = Indices(share(iteration));
      REQUIRE(batch.size() == 4);
      for (int i = 0; i < 4; ++i) together[i * 3 + rank] = batch[i];
    }
    CHECK(together == Indices(whole(iteration)));
  }
}

TEST_CASE("every epoch is a new order, the same for equal seeds") {
  ShuffledOrder order = OrderOf({60, 1, 2, 5, 3});
  ShuffledOrder same = OrderOf({60, 1, 2, 5, 3});
  ShuffledOrder other = OrderOf({60, 1, 2, 5, 4});
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const std::vector<int64_t> images = Epoch(order, 6, epoch);
    CHECK(Epoch(same, 6, epoch) == images);
    CHECK(Epoch(other, 6, epoch) != images);
    orders.insert(images);
  }
  CHECK(orders.size() == 4);
  // Going back gives the same order again, which a restarted worker relies on.
  CHECK(orders.count(Epoch(order, 6, 0)) == 1);
}

// Returns the first random number of each image in an epoch, over all ranks.
std::map<int64_t, float> RandomByImage(int workers, uint64_t seed, int64_t epoch) {
  std::map<int64_t, float> seen;
  for (int rank = 0; rank < workers; ++rank) {
    ShuffledOrder order = OrderOf({24, rank, workers, 2, seed, /*augment=*/true});
    const int64_t batches = 24 / (workers * 2);
    for (int64_t i = 0; i < batches; ++i) {
      for (const ImageToRead& image : order(epoch * batches + i)) {
        REQUIRE(image.augment.has_value());
        seen[image.index] = image.augment->Uniform(0);
      }
    }
  }
  return seen;
}

TEST_CASE("an augmentation follows from seed, epoch and image, not from the workers") {
  const std::map<int64_t, float> one = RandomByImage(1, 5, 2);
  CHECK(one.size() == 24);
  CHECK(RandomByImage(3, 5, 2) == one);
  CHECK(RandomByImage(1, 6, 2) != one);
  CHECK(RandomByImage(1, 5, 3) != one);
  std::set<float> different;
  for (const auto& [image, random] : one) different.insert(random);
  CHECK(different.size() > 20);
}

TEST_CASE("without augmentation an image gets no random numbers") {
  ShuffledOrder order = OrderOf({24, 0, 1, 24, 5});
  for (const ImageToRead& image : order(0)) CHECK_FALSE(image.augment.has_value());
}

TEST_CASE("a sequential order goes through all images once, the last batch has the rest") {
  const BatchOrder order = SequentialOrder(7, 3);
  CHECK(Indices(order(0)) == std::vector<int64_t>{0, 1, 2});
  CHECK(Indices(order(1)) == std::vector<int64_t>{3, 4, 5});
  CHECK(Indices(order(2)) == std::vector<int64_t>{6});
  CHECK(Indices(SequentialOrder(6, 3)(1)) == std::vector<int64_t>{3, 4, 5});
  for (const ImageToRead& image : order(1)) CHECK_FALSE(image.augment.has_value());
}

}  // namespace
}  // namespace evenshard
