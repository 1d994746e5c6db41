#include "worker/data/order/dealing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/worker/data/order/worker_sets.h"

namespace evenshard {
namespace {

using Catch::Contains;

using Shares = std::map<int, Dealing::Share>;  // by rank

Dealing MustDeal(int64_t images, int64_t batch_size, const std::vector<WorkerSet>& worker_sets) {
  const auto dealing =
      Dealing::Create({.images = images, .batch_size = batch_size, .worker_sets = worker_sets});
  INFO(dealing.status().ToString());
  REQUIRE(dealing.ok());
  return *dealing;
}

// A history of worker sets in which ranks of 0 .. workers - 1 are lost and come back.
struct Drawn {
  int workers;
  int64_t batch_size;
  int64_t images;
  std::vector<WorkerSet> worker_sets;
  int64_t iterations;  // enough to go beyond the last change
};

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}

  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  Drawn History() {
    Drawn drawn;
    drawn.workers = static_cast<int>(Between(1, 6));
    drawn.batch_size = Between(1, 7);
    const int64_t global = drawn.workers * drawn.batch_size;
    drawn.images = Between(global, 6 * global);
    int64_t from = 0;
    for (int64_t i = Between(0, 6); i >= 0; --i) {
      WorkerSet worker_set;
      worker_set.set_from_iteration(from);
      for (int rank = 0; rank < drawn.workers; ++rank) {
        if (from == 0 || Between(0, 2) > 0) worker_set.add_rank(rank);
      }
      if (worker_set.rank().empty())
        worker_set.add_rank(static_cast<int>(Between(0, drawn.workers - 1)));
      drawn.worker_sets.push_back(worker_set);
      from += Between(0, 12);
    }
    drawn.iterations = from + 30;
    return drawn;
  }

 private:
  std::mt19937 random_;
};

// What the definition says, iteration by iteration.
std::vector<Shares> DealOneByOne(const Drawn& drawn) {
  std::vector<Shares> dealt;
  int64_t epoch = 0, position = 0;
  for (int64_t i = 0; i < drawn.iterations; ++i) {
    const WorkerSet* worker_set = nullptr;
    for (const WorkerSet& c : drawn.worker_sets) {
      if (static_cast<int64_t>(c.from_iteration()) <= i) worker_set = &c;
    }
    const int64_t members = worker_set->rank_size();
    if (position + members * drawn.batch_size > drawn.images) {
      ++epoch;
      position = 0;
    }
    Shares& shares = dealt.emplace_back();
    for (int j = 0; j < members; ++j) {
      shares[worker_set->rank(j)] = {.epoch = epoch, .first = position + j, .stride = members};
    }
    position += members * drawn.batch_size;
  }
  return dealt;
}

Shares SharesAt(const Dealing& dealing, int workers, int64_t iteration) {
  Shares shares;
  for (int rank = 0; rank < workers; ++rank) {
    if (const auto share = dealing.ShareOf(rank, iteration)) shares[rank] = *share;
  }
  return shares;
}

TEST_CASE("whatever worker sets come and go, images are dealt as the definition says") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  Draw draw(seed);
  for (int round = 0; round < 200; ++round) {
    const Drawn drawn = draw.History();
    const Dealing dealing = MustDeal(drawn.images, drawn.batch_size, drawn.worker_sets);
    const std::vector<Shares> expected = DealOneByOne(drawn);
    for (int64_t i = 0; i < drawn.iterations; ++i) {
      CAPTURE(round, i);
      REQUIRE(SharesAt(dealing, drawn.workers, i) == expected[i]);
      CHECK(dealing.EpochAt(i) == expected[i].begin()->second.epoch);
      CHECK(dealing.LowestRank(i) == expected[i].begin()->first);
      const int64_t before = i == 0 ? -1 : dealing.EpochAt(i - 1);
      if (dealing.EpochAt(i) != before) CHECK(dealing.IterationsOf(dealing.EpochAt(i)) == i);
    }
  }
}

TEST_CASE("no image is dealt twice in an epoch, and less than one iteration's images are left") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  Draw draw(seed);
  for (int round = 0; round < 200; ++round) {
    const Drawn drawn = draw.History();
    const Dealing dealing = MustDeal(drawn.images, drawn.batch_size, drawn.worker_sets);
    std::vector<int> times(drawn.images);
    for (int64_t i = 0; i < drawn.iterations; ++i) {
      CAPTURE(round, i);
      const Shares shares = SharesAt(dealing, drawn.workers, i);
      if (i > 0 && dealing.EpochAt(i) != dealing.EpochAt(i - 1)) {
        CHECK(dealing.EpochAt(i) == dealing.EpochAt(i - 1) + 1);
        const auto left = std::count(times.begin(), times.end(), 0);
        CHECK(left < static_cast<int64_t>(shares.size()) * drawn.batch_size);
        times.assign(drawn.images, 0);
      }
      for (const auto& [rank, share] : shares) {
        for (int64_t k = 0; k < drawn.batch_size; ++k) ++times.at(share.first + k * share.stride);
      }
      REQUIRE(*std::max_element(times.begin(), times.end()) == 1);
      // Those that were dealt stand before all others.
      CHECK(std::is_sorted(times.rbegin(), times.rend()));
    }
  }
}

TEST_CASE("a change of the worker set leaves what was dealt before it as it is") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  Draw draw(seed);
  for (int round = 0; round < 100; ++round) {
    const Drawn drawn = draw.History();
    const Dealing whole = MustDeal(drawn.images, drawn.batch_size, drawn.worker_sets);
    for (size_t known = 1; known <= drawn.worker_sets.size(); ++known) {
      const Dealing part = MustDeal(
          drawn.images, drawn.batch_size,
          {drawn.worker_sets.begin(), drawn.worker_sets.begin() + static_cast<int64_t>(known)});
      const int64_t first = whole.FirstDifference(part);
      CHECK(part.FirstDifference(whole) == first);
      CHECK(first >= (known == drawn.worker_sets.size()
                          ? std::numeric_limits<int64_t>::max()
                          : static_cast<int64_t>(drawn.worker_sets[known].from_iteration())));
      for (int64_t i = 0; i < std::min(first, drawn.iterations); ++i) {
        REQUIRE(SharesAt(part, drawn.workers, i) == SharesAt(whole, drawn.workers, i));
      }
    }
  }
}

TEST_CASE("large iteration numbers take no longer") {
  const Dealing dealing =
      MustDeal(1000, 10, {WorkerSetFrom(0, {0, 1, 2}), WorkerSetFrom(1'000'000'000'000, {0, 2})});
  // 33 iterations of 30 images an epoch, then 50 of 20.
  const int64_t epoch = 1'000'000'000'000 / 33;
  CHECK(dealing.EpochAt(1'000'000'000'000) == epoch);
  CHECK(dealing.EpochAt(1'000'000'000'000 + 5'000'000'000) == epoch + 100'000'000);
  CHECK(dealing.IterationsOf(epoch) == epoch * 33);
}

TEST_CASE("a run of epochs becomes longer when a worker is lost, and shorter when one comes") {
  const WorkerSet three = WorkerSetFrom(0, {0, 1, 2});
  CHECK(MustDeal(90, 10, {three}).IterationsOf(2) == 6);
  CHECK(MustDeal(90, 10, {three, WorkerSetFrom(3, {0, 2})}).IterationsOf(2) == 7);
  CHECK(MustDeal(90, 10, {WorkerSetFrom(0, {1}), WorkerSetFrom(9, {0, 1, 2})}).IterationsOf(2) ==
        12);
  // What is left of the last epoch suffices for the smaller worker set.
  CHECK(MustDeal(110, 10, {three}).IterationsOf(1) == 3);
  CHECK(MustDeal(110, 10, {three, WorkerSetFrom(3, {0, 1})}).IterationsOf(1) == 4);
  CHECK(MustDeal(110, 10, {three, WorkerSetFrom(4, {0, 1})}).IterationsOf(1) == 3);
}

TEST_CASE("worker sets that cannot be are named") {
  const auto message = [](const std::vector<WorkerSet>& worker_sets) {
    const auto dealing =
        Dealing::Create({.images = 20, .batch_size = 10, .worker_sets = worker_sets});
    CHECK(absl::IsInvalidArgument(dealing.status()));
    return std::string(dealing.status().message());
  };
  const WorkerSet first = WorkerSetFrom(0, {0, 1});
  CHECK(message({}) == "there is no worker set from iteration 0 on");
  CHECK(message({WorkerSetFrom(3, {0})}) == "there is no worker set from iteration 0 on");
  CHECK(message({first, WorkerSetFrom(5, {})}) ==
        "the worker set from iteration 5 on has no ranks");
  CHECK(message({first, WorkerSetFrom(5, {1, 0})}) ==
        "the worker set from iteration 5 on has rank 0 after rank 1");
  CHECK_THAT(message({first, WorkerSetFrom(5, {1, 1})}), Contains("has rank 1 after rank 1"));
  CHECK(message({first, WorkerSetFrom(5, {0}), WorkerSetFrom(4, {1})}) ==
        "the worker set from iteration 4 on comes after the one from iteration 5 on");
  CHECK(message({WorkerSetFrom(0, {0, 1, 2})}) ==
        "the worker set from iteration 0 on needs 30 images for an iteration, the data has 20");
}

}  // namespace
}  // namespace evenshard
