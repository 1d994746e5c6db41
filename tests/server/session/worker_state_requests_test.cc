#include "server/session/worker_state_requests.h"

#include <catch2/catch.hpp>

#include "tests/testing/fake_clock.h"

namespace evenshard {

using Catch::Contains;
using Progress = WorkerStateRequests::Progress;

TEST_CASE("who needs a state is brought together with one that waits at the same exchange") {
  const FakeClock clock;
  WorkerStateRequests requests(&clock);
  CHECK(!requests.Offer({0, 9}, 7).is_awaited);
  CHECK(*requests.Ask(1, 42, 7, {0, 1, 2}) == Progress::kNone);
  // One that waits elsewhere has another one.
  CHECK(requests.Offer({0, 9}, 6).ticket == 0);
  CHECK(requests.Offer({0, 9}, 6).is_awaited);
  CHECK(requests.Offer({0, 9}, 7).ticket == 42);
  CHECK(*requests.Ask(1, 42, 7, {0, 1, 2}) == Progress::kSender);
  // Everybody is served by one.
  const WorkerStateRequests::Answer other = requests.Offer({2, 9}, 7);
  CHECK(other.ticket == 0);
  CHECK(other.is_awaited);
  CHECK(requests.IsAwaited(42));
  // The transfer broke off: another ticket, of which no slot has passed on anything, is served.
  CHECK(requests.SenderOf(42)->incarnation == 9);
  requests.Lose(42);
  CHECK(!requests.SenderOf(42).has_value());
  CHECK(*requests.Ask(1, 42, 7, {0, 1, 2}) == Progress::kBroken);
  CHECK(requests.Offer({2, 9}, 7).ticket == 0);
  CHECK(*requests.Ask(1, 43, 7, {0, 1, 2}) == Progress::kNone);
  CHECK(requests.Offer({2, 9}, 7).ticket == 43);
  CHECK(requests.IsAwaited(43));
  CHECK(!requests.IsAwaited(42));
  requests.Received(1);
  CHECK(!requests.IsAwaited(43));
  CHECK(!requests.Offer({0, 9}, 7).is_awaited);
  CHECK(!requests.is_lost());
}

TEST_CASE("one that asks hears that the others have gone on, or have ended") {
  FakeClock clock;
  WorkerStateRequests requests(&clock);
  CHECK(*requests.Ask(1, 42, 7, {0, 1}, {}) == Progress::kNone);
  CHECK(requests.Offer({0, 9}, 8).ticket == 0);
  CHECK(*requests.Ask(1, 42, 7, {0, 1}, {}) == Progress::kPassed);
  CHECK(*requests.Ask(1, 43, 8, {0, 1}, {}) == Progress::kNone);
  CHECK(requests.Offer({0, 9}, 8).ticket == 43);
  // One that has finished may still offer, for a while.
  clock.Advance(absl::Seconds(6));
  CHECK(requests.Ask(1, 44, 8, {0, 1}, {0}).ok());
  clock.Advance(absl::Seconds(6));
  CHECK(absl::IsUnavailable(requests.Ask(1, 44, 8, {0, 1}, {0}).status()));
}

TEST_CASE("a sender that refuses is quoted to the one that asks, under its ticket") {
  const FakeClock clock;
  WorkerStateRequests requests(&clock);
  REQUIRE(requests.Ask(1, 42, 7, {0, 1}).ok());
  requests.Refuse(42, "nobody has offered yet");
  CHECK(requests.Ask(1, 42, 7, {0, 1}).ok());
  REQUIRE(requests.Offer({0, 9}, 7).ticket == 42);
  requests.Refuse(41, "another one");
  CHECK(requests.Ask(1, 42, 7, {0, 1}).ok());
  requests.Refuse(42, "it waits\nelsewhere");
  const absl::Status refused = requests.Ask(1, 42, 7, {0, 1}).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Contains("worker 0 cannot send"));
  CHECK_THAT(std::string(refused.message()), !Contains("\n"));
  CHECK(requests.Ask(1, 43, 7, {0, 1}).ok());
}

TEST_CASE("where a state may be lost, the one that asks last hears that nobody has it") {
  const FakeClock clock;
  WorkerStateRequests requests(&clock, /*may_be_lost=*/true);
  REQUIRE(requests.Ask(1, 42, 7, {0, 1}).ok());
  CHECK(absl::IsNotFound(requests.Ask(0, 43, 7, {0, 1}).status()));
  CHECK(!requests.is_lost());
  // The others get what that one comes to.
  CHECK(requests.Ask(1, 42, 7, {0, 1}).ok());
  CHECK(requests.Offer({0, 9}, 7).ticket == 42);
  // One that is alone hears it at once.
  CHECK(absl::IsNotFound(requests.Ask(2, 44, 7, {2}).status()));
}

TEST_CASE("what all workers ask for is lost") {
  FakeClock clock;
  WorkerStateRequests requests(&clock);
  REQUIRE(requests.Ask(1, 42, 7, {0, 1}).ok());
  SECTION("if all ask") {
    const absl::Status lost = requests.Ask(0, 43, 7, {0, 1}).status();
    CHECK(absl::IsUnavailable(lost));
    CHECK_THAT(std::string(lost.message()), Contains("nobody has the parameters"));
    CHECK(requests.is_lost());
    CHECK(absl::IsUnavailable(requests.Ask(1, 42, 7, {0, 1}).status()));
  }
  SECTION("but not if one has received its own") {
    requests.Received(1);
    CHECK(requests.Ask(0, 43, 7, {0, 1}).ok());
    CHECK(!requests.is_lost());
  }
  SECTION("but not if one offers it") {
    requests.Offer({1, 9}, 7);
    CHECK(requests.Ask(0, 43, 7, {0, 1}).ok());
  }
  SECTION("but not if one has not asked for long") {
    clock.Advance(WorkerStateRequests::kForgetAfter + absl::Seconds(1));
    CHECK(requests.Ask(0, 43, 7, {0, 1}).ok());
    CHECK(requests.Offer({1, 9}, 7).ticket == 43);
  }
}

}  // namespace evenshard
