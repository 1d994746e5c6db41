// What a worker does under QUORUM when the run goes on without it.

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/exchange/core/core_fixture.h"

namespace evenshard {
namespace {

struct Fixture : CoreFixture {
  explicit Fixture(const std::string& late = "DROP")
      : CoreFixture({"update.policy=QUORUM", "update.quorum=2", "update.late=" + late}) {
    StartAndConnect();
  }

  ExchangeRound& round() { return core.round(); }
  std::vector<GradientHeader> TakeAllSlots() {
    std::vector<GradientHeader> pushes = TakeAll(0);
    for (const GradientHeader& push : TakeAll(1)) pushes.push_back(push);
    return pushes;
  }
  // The chunk is at `next` when the shard answers. Returns whether the answer counts.
  bool Reply(const GradientHeader& push, uint64_t next, bool dropped = false) {
    const int slot = config.plan().chunks()[push.chunk].shard;
    const absl::StatusOr<bool> counts = round().Claim(slot, {.iteration = push.iteration,
                                                             .chunk = push.chunk,
                                                             .version = next,
                                                             .dropped = dropped,
                                                             .next_iteration = next});
    INFO(counts.status().ToString());
    REQUIRE(counts.ok());
    if (*counts && dropped) round().Dropped(push.chunk);
    if (*counts && !dropped) round().Answered(push.chunk, next);
    return *counts;
  }
  void Train(uint64_t iteration, uint64_t next, bool dropped = false) {
    PushAll(iteration);
    for (const GradientHeader& push : TakeAllSlots()) Reply(push, next, dropped);
    REQUIRE(round().Settled());
    round().End();
  }
  void Onlook() {
    REQUIRE(round().Begin(round().next_iteration() - 1, ExchangeRound::Onlooker()).ok());
    REQUIRE(round().Push(kAllTensors).ok());
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a worker whose gradients count goes on with the next iteration") {
  for (const uint64_t iteration : {0, 1}) {
    Train(iteration, iteration + 1);
    CHECK_FALSE(round().is_behind());
    CHECK(round().next_iteration() == iteration + 1);
  }
}

TEST_CASE_METHOD(Fixture, "a worker that was dropped catches up, and goes on where the run is") {
  Train(0, 1);
  PushAll(1);
  const std::vector<GradientHeader> pushes = TakeAllSlots();
  for (const GradientHeader& push : pushes) {
    CHECK_FALSE(push.onlooks);
    Reply(push, push.chunk == 3 ? 6 : 5, /*dropped=*/true);
  }
  round().End();
  CHECK(round().is_behind());
  CHECK(round().next_iteration() == 6);
  CHECK(absl::IsFailedPrecondition(round().Begin(6)));
  Onlook();
  for (const GradientHeader& push : TakeAllSlots()) {
    CHECK(push.iteration == 5);
    CHECK(push.skip);
    CHECK(push.onlooks);
    CHECK(push.base_version == 1);  // what was dropped has brought no parameters
    Reply(push, 6);
  }
  round().End();
  CHECK_FALSE(round().is_behind());
  CHECK(round().next_iteration() == 6);
  Train(6, 7);
  CHECK(round().next_iteration() == 7);
}

TEST_CASE("a gradient counts for those that it carries") {
  Fixture worker("CARRY");
  const auto weights = [&](ExchangeKind kind, uint64_t iteration, bool dropped) {
    ExchangeRound& round = worker.round();
    REQUIRE(round.Begin(iteration, std::move(kind)).ok());
    REQUIRE(round.Push(kAllTensors).ok());
    float weight = 0;
    for (const GradientHeader& push : worker.TakeAllSlots()) {
      CHECK((weight == 0 || push.weight == weight));
      weight = push.weight;
      worker.Reply(push, iteration + 1, dropped);
    }
    round.End();
    if (dropped) {
      worker.Onlook();
      for (const GradientHeader& push : worker.TakeAllSlots()) {
        CHECK(push.weight == 1);
        worker.Reply(push, iteration + 1);
      }
      round.End();
    }
    return weight;
  };
  CHECK(weights({.weight = 2}, 0, /*dropped=*/true) == 2);
  CHECK(weights({.weight = 0.5}, 1, /*dropped=*/true) == 2.5);
  CHECK(weights({.skip = true}, 2, /*dropped=*/false) == 1);
  CHECK(weights({}, 3, /*dropped=*/false) == 3.5);
  CHECK(weights({}, 4, /*dropped=*/false) == 1);
}

TEST_CASE_METHOD(Fixture, "a worker catches up again if the run goes on meanwhile") {
  Train(0, 1, /*dropped=*/true);
  REQUIRE(round().is_behind());
  CHECK(round().next_iteration() == 1);
  Onlook();
  for (const GradientHeader& push : TakeAllSlots()) Reply(push, push.chunk == 0 ? 1 : 2);
  round().End();
  CHECK(round().is_behind());
  CHECK(round().next_iteration() == 2);
  Onlook();
  for (const GradientHeader& push : TakeAllSlots()) Reply(push, 2);
  round().End();
  CHECK_FALSE(round().is_behind());
}

TEST_CASE_METHOD(Fixture, "a worker that counts and reads later updates catches up too") {
  PushAll(0);
  for (const GradientHeader& push : TakeAllSlots()) Reply(push, push.chunk == 0 ? 3 : 1);
  round().End();
  CHECK(round().is_behind());
  CHECK(round().next_iteration() == 3);
}

TEST_CASE_METHOD(Fixture,
                 "a second answer to what was dropped is none to a catch-up of its number") {
  PushAll(0);
  const std::vector<GradientHeader> pushes = TakeAllSlots();
  for (const GradientHeader& push : pushes) Reply(push, 1, /*dropped=*/true);
  round().End();
  REQUIRE(round().Begin(0, ExchangeRound::Onlooker()).ok());
  for (const GradientHeader& push : pushes) CHECK_FALSE(Reply(push, 1, /*dropped=*/true));
  REQUIRE(round().Push(kAllTensors).ok());
  for (const GradientHeader& push : TakeAllSlots()) {
    CHECK_FALSE(Reply(push, 1, /*dropped=*/true));
    CHECK(Reply(push, 1));
  }
  round().End();
  CHECK_FALSE(round().is_behind());
}

TEST_CASE("a worker joins a run whose slots are at different iterations, since it goes on") {
  CoreFixture fixture({"update.policy=QUORUM", "update.quorum=2"});
  fixture.core.Start();
  fixture.Connect(0, 5);
  fixture.Connect(1, 40);
  CHECK(fixture.core.ready());
  CHECK(fixture.core.failure().ok());
  CHECK(fixture.core.round().next_iteration() == 5);
}

}  // namespace evenshard
