#include "worker/exchange/core/exchange_core.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/base/error_kind.h"
#include "tests/worker/exchange/core/core_fixture.h"

namespace evenshard {

using Catch::Contains;

TEST_CASE("the first shard accepts a worker before the others are asked") {
  CoreFixture fixture;
  fixture.core.Start();
  REQUIRE(fixture.transport.attempts.size() == 1);
  const ExchangeTransport::Attempt& first = fixture.transport.attempts[0];
  CHECK(first.slot == 0);
  CHECK(first.address == "a:1");
  CHECK(first.join.worker() == 1);
  CHECK(first.join.incarnation() == kIncarnation);
  CHECK_FALSE(first.join.has_slot());
  CHECK(first.join.view() == 0);
  fixture.Connect(0);
  REQUIRE(fixture.transport.attempts.size() == 2);
  CHECK(fixture.transport.attempts[1].address == "b:2");
  CHECK_FALSE(fixture.core.ready());
  fixture.Connect(1);
  CHECK(fixture.core.ready());
  CHECK(fixture.core.AwaitReady().ok());
  CHECK(fixture.core.worker_sets()[0].rank_size() == 3);
}

TEST_CASE("a worker starts at the smallest iteration under SYNC, and at the largest under ASYNC") {
  const auto [policy, expected] =
      GENERATE(table<std::string, uint64_t>({{"SYNC", 6}, {"ASYNC", 7}}));
  CoreFixture fixture({"update.policy=" + policy});
  fixture.core.Start();
  fixture.Connect(0, 7);
  fixture.Connect(1, 6);
  REQUIRE(fixture.core.ready());
  CHECK(fixture.core.round().next_iteration() == expected);
}

TEST_CASE("shards that are of different runs are refused") {
  CoreFixture fixture;
  fixture.core.Start();
  fixture.Connect(0, 7);
  fixture.Connect(1, 5);
  CHECK(absl::IsFailedPrecondition(fixture.core.AwaitReady()));
  CHECK_THAT(std::string(fixture.core.failure().message()),
             Contains("shard 0 (a:1) has taken this worker's iterations before 7, shard 1 (b:2)"));
}

TEST_CASE("a shard that is not up in time is named, or its refusal is returned") {
  CoreFixture fixture;
  fixture.core.Start();
  SECTION("never reached") {
    fixture.Advance(absl::Seconds(7));
    CHECK(fixture.core.failure().ok());
    fixture.Advance(absl::Seconds(1));
    CHECK(fixture.core.AwaitReady() ==
          absl::DeadlineExceededError(
              "shard 0 (a:1) was not up within 8 s (limits.startup_seconds); start it with `ps "
              "--config=FILE --shard=0`"));
  }
  SECTION("refused") {
    for (int i = 0; i < 3; ++i) {
      fixture.Break(0, absl::UnavailableError("held by another"));
      fixture.Advance(absl::Seconds(2));
    }
    CHECK(fixture.core.failure().ok());
    fixture.Advance(absl::Seconds(2));
    CHECK(fixture.core.AwaitReady() == absl::UnavailableError("shard 0 (a:1): held by another"));
  }
}

TEST_CASE("a broken connection is made again, later and later while nothing is answered") {
  CoreFixture fixture;
  fixture.StartAndConnect();
  std::vector<int64_t> delays;
  for (int i = 0; i < 8; ++i) {
    fixture.Break(1);
    delays.push_back(absl::ToInt64Milliseconds(fixture.Delay(1)));
    fixture.Connect(1);
  }
  CHECK(delays == std::vector<int64_t>{10, 20, 40, 80, 160, 320, 500, 500});
  fixture.PushAll(0);
  fixture.Answer(fixture.TakeAll(1)[0]);
  fixture.Break(1);
  CHECK(fixture.Delay(1) == absl::Milliseconds(10));
  CHECK(fixture.transport.latest[0]->number == 1);
  CHECK(fixture.core.failure().ok());
}

TEST_CASE("what is not answered is pushed again on the new connection, without hold") {
  CoreFixture fixture({"exchange.schedule=SEQUENTIAL"});
  fixture.StartAndConnect();
  fixture.PushAll(4);
  std::vector<GradientHeader> first = fixture.TakeAll(1);
  CHECK(first.size() == fixture.ChunksOf(1) - 1);  // the last one waits for the other slot's
  const std::vector<GradientHeader> other = fixture.TakeAll(0);
  for (const GradientHeader& push : fixture.TakeAll(1)) first.push_back(push);
  REQUIRE(first.size() == fixture.ChunksOf(1));
  CHECK(first.front().hold);
  CHECK_FALSE(first.back().hold);
  fixture.Answer(first[0]);
  const uint64_t old = fixture.transport.latest[1]->number;
  fixture.Break(1);
  fixture.core.Broken(1, old, absl::InternalError("of another stream"));  // has no effect
  CHECK(fixture.TakeAll(1).empty());
  fixture.core.Connected(1, old, JoinResponse());  // has none either
  CHECK(fixture.TakeAll(1).empty());

  fixture.transport.wakes.clear();
  fixture.Connect(1);
  CHECK(fixture.transport.wakes == std::vector<int>{1});
  const std::vector<GradientHeader> second = fixture.TakeAll(1);
  REQUIRE(second.size() == first.size() - 1);
  for (const GradientHeader& push : second) {
    CHECK_FALSE(push.hold);
    CHECK(push.iteration == 4);
    CHECK(push.chunk != first[0].chunk);
    fixture.Answer(push);
  }
  for (const GradientHeader& push : other) fixture.Answer(push);
  CHECK(fixture.core.round().Settled());
  for (const GradientHeader& push : first) fixture.Answer(push);  // late, and ignored
  CHECK(fixture.core.failure().ok());
}

TEST_CASE("a connection that breaks before the last chunks may leave does not let them") {
  CoreFixture fixture({"exchange.schedule=SEQUENTIAL"});
  fixture.StartAndConnect();
  fixture.PushAll(0);
  REQUIRE(fixture.TakeAll(1).size() == fixture.ChunksOf(1) - 1);
  fixture.Break(1);
  fixture.Connect(1);
  CHECK(fixture.TakeAll(1).size() == fixture.ChunksOf(1) - 1);  // again, and not the last one
  fixture.transport.wakes.clear();
  CHECK(fixture.TakeAll(0).size() == fixture.ChunksOf(0));
  CHECK(fixture.transport.wakes == std::vector<int>{0, 1});
  CHECK(fixture.TakeAll(1).size() == 1);
}

TEST_CASE("what is pushed while a slot is not connected leaves when it is") {
  CoreFixture fixture;
  fixture.StartAndConnect();
  fixture.Break(0);
  fixture.PushAll(0);
  CHECK(fixture.TakeAll(0).empty());
  CHECK(fixture.TakeAll(1).size() == fixture.ChunksOf(1));
  fixture.Connect(0);
  CHECK(fixture.TakeAll(0).size() == fixture.ChunksOf(0));
}

TEST_CASE(
    "small chunks wait for the rest of the iteration, but not those that somebody waits for") {
  CoreFixture fixture({"exchange.schedule=FULL"});
  fixture.StartAndConnect();
  ExchangeRound& round = fixture.core.round();
  REQUIRE(round.Begin(0).ok());
  REQUIRE(round.Push({1}).ok());  // a small tensor
  const int slot = fixture.config.plan().chunks()[5].shard;
  CHECK(fixture.TakeAll(slot).empty());
  SECTION("when everything is pushed") {
    REQUIRE(round.Push({0, 2, 3}).ok());
    CHECK(fixture.TakeAll(slot).size() == fixture.ChunksOf(slot));
  }
  SECTION("when they are flushed") {
    fixture.transport.wakes.clear();
    round.Flush();
    CHECK(fixture.transport.wakes == std::vector<int>{0, 1});
    CHECK(fixture.TakeAll(slot).size() == 1);
  }
  SECTION("when the connection is made again, since they may have been waited for before") {
    round.Flush();
    CHECK(fixture.TakeAll(slot).size() == 1);
    fixture.Break(slot);
    fixture.Connect(slot);
    CHECK(fixture.TakeAll(slot).size() == 1);
  }
}

TEST_CASE("a worker gives a shard up after limits.reconnect_seconds, with both reasons") {
  CoreFixture fixture;
  fixture.StartAndConnect();
  fixture.Break(1);
  fixture.Advance(absl::Seconds(2));
  fixture.Break(1, absl::UnavailableError("is shutting down"));
  CHECK(fixture.core.failure().ok());
  fixture.Advance(absl::Seconds(1));
  CHECK(fixture.core.failure() ==
        absl::UnavailableError("shard 1 (b:2): Socket closed; it was not there again within 3 s "
                               "(limits.reconnect_seconds): is shutting down"));
}

TEST_CASE("without time to reconnect the end of a connection fails the exchange") {
  CoreFixture fixture({"limits.reconnect_seconds=0"});
  fixture.StartAndConnect();
  fixture.Break(1, absl::OkStatus());
  CHECK(fixture.core.failure() ==
        absl::UnavailableError("shard 1 (b:2): it ended the exchange without a reason"));
}

TEST_CASE("errors that do not pass fail the exchange, with the shard's name") {
  const absl::Status status = GENERATE(
      absl::InvalidArgumentError("bad"), absl::OutOfRangeError("bad"), absl::AbortedError("bad"),
      absl::DeadlineExceededError("bad"), absl::FailedPreconditionError("bad"),
      absl::AlreadyExistsError("bad"), absl::ResourceExhaustedError("bad"),
      absl::InternalError("bad"), WithKind(ErrorDetail::RUN_FAILED, absl::UnavailableError("bad")));
  CoreFixture fixture;
  fixture.StartAndConnect();
  fixture.Break(0, status);
  CHECK(fixture.core.failure() == Reworded(status, "shard 0 (a:1): bad"));
}

TEST_CASE("too many streams before a join is accepted are waited for") {
  CoreFixture fixture;
  fixture.core.Start();
  fixture.Break(0, absl::ResourceExhaustedError("64 streams"));
  CHECK(fixture.core.failure().ok());
  CHECK(fixture.transport.latest[0]->number == 2);
}

TEST_CASE("an attempt that takes too long is replaced") {
  CoreFixture fixture({"limits.reconnect_seconds=30"});
  fixture.StartAndConnect();
  fixture.Break(1);
  const uint64_t number = fixture.transport.latest[1]->number;
  fixture.Advance(absl::Seconds(4));
  CHECK(fixture.transport.latest[1]->number == number);
  fixture.Advance(absl::Seconds(2));
  CHECK(fixture.transport.latest[1]->number == number + 1);
}

TEST_CASE("a shard that has lost its state is noticed") {
  CoreFixture fixture;
  fixture.core.Start();
  fixture.Connect(0, 0, 5);
  fixture.Connect(1, 0, 6);
  REQUIRE(fixture.core.ready());
  fixture.Break(1);
  fixture.Connect(1, 0, 6);
  CHECK(fixture.core.failure().ok());
  fixture.Break(1);
  fixture.Connect(1, 0, 7);
  CHECK(
      fixture.core.failure() ==
      absl::FailedPreconditionError("shard 1 (b:2): the shard was started anew without its state"));
}

}  // namespace evenshard
