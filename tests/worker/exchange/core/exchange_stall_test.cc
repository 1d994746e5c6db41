// Waits of ExchangeRound that make no progress.

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/exchange/core/round_fixture.h"
#include "worker/exchange/core/exchange_round.h"

namespace evenshard {
namespace {

// Waits on a thread, and looks at the round whenever a second of the fixture's clock has passed.
class WatchedWait {
 public:
  explicit WatchedWait(RoundFixture* fixture,
                       absl::Status (ExchangeRound::*wait)() = &ExchangeRound::AwaitAll)
      : fixture_(*fixture), thread_([this, wait] {
          outcome_ = (fixture_.round.*wait)();
          ended_ = true;
        }) {}
  ~WatchedWait() {
    if (!ended_) fixture_.round.Fail(absl::CancelledError("the test is over"));
    thread_.join();
  }

  std::optional<Stall> Look(absl::Duration passed = absl::Seconds(1)) {
    fixture_.clock.Advance(passed);
    return fixture_.round.CheckProgress(fixture_.clock.Now());
  }
  // Looks until there is news; the first looks may come before the wait has begun.
  Stall AwaitNews() {
    while (true) {
      const std::optional<Stall> stall = Look();
      if (stall.has_value() && stall->is_news) return *stall;
    }
  }
  // How long the wait had lasted whenever it was news, in so many further looks.
  std::vector<absl::Duration> News(int looks) {
    std::vector<absl::Duration> news;
    for (int i = 0; i < looks; ++i) {
      const std::optional<Stall> stall = Look();
      if (stall.has_value() && stall->is_news) news.push_back(stall->lasted);
    }
    return news;
  }
  // Looks until the wait ends; its outcome.
  absl::Status AwaitEnd() {
    while (!ended_) Look();
    return outcome_;
  }

 private:
  RoundFixture& fixture_;
  absl::Status outcome_ = absl::UnknownError("has not ended");
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// Lets a wait for an iteration last `seconds` from its first look; what of it was news, with
// its end, which is negative.
std::vector<absl::Duration> NewsOfIteration(RoundFixture* fixture, uint64_t iteration,
                                            int seconds) {
  fixture->PushAll(iteration);
  WatchedWait wait(fixture);
  std::optional<Stall> stall;
  std::vector<absl::Duration> news;
  absl::Duration lasted;
  const auto take = [&] {
    if (!stall.has_value()) return;
    CHECK(stall->iteration == iteration);
    lasted = stall->lasted;
    if (stall->is_news) news.push_back(stall->missing.empty() ? -lasted : lasted);
  };
  while (lasted < absl::Seconds(seconds)) {
    stall = wait.Look();
    take();
  }
  for (const int layer : {0, 2}) fixture->Answer(layer);
  stall = wait.Look();
  take();
  REQUIRE(wait.AwaitEnd().ok());
  fixture->round.End();
  return news;
}

}  // namespace

TEST_CASE("a view that does not come ends the wait for it") {
  RoundFixture fixture({"limits.exchange_seconds=10"});
  REQUIRE(fixture.Begin(2).ok());
  fixture.Push(0);
  const uint32_t chunk = fixture.ChunksOf(0)[0];
  REQUIRE(*fixture.Claim(chunk, 2, 9));
  fixture.round.Answered(chunk, 1);
  CHECK(WatchedWait(&fixture, &ExchangeRound::AwaitView).AwaitEnd() ==
        absl::DeadlineExceededError("iteration 2: view 9, which a shard follows, has not come for "
                                    "12s (limits.exchange_seconds)"));
}

TEST_CASE("if nothing moves for the limit, the error names the shards and the iteration") {
  RoundFixture fixture({"limits.exchange_seconds=10"});
  fixture.PushAll(3);
  for (const uint32_t chunk : fixture.config.plan().chunks_of_shard(0)) {
    fixture.AnswerChunk(chunk);
  }
  const absl::Status status = WatchedWait(&fixture).AwaitEnd();
  CHECK(status == absl::DeadlineExceededError(absl::StrCat(
                      "iteration 3: shard 1 has not answered ", fixture.ChunksOfShard(1), " of ",
                      fixture.ChunksOfShard(1), " chunks for 12s (limits.exchange_seconds)")));
  CHECK(fixture.Begin(4) == status);
}

TEST_CASE("there is no limit while the run waits for a worker that is not there") {
  RoundFixture fixture({"limits.exchange_seconds=10"});
  fixture.PushAll(0);
  fixture.round.Follow(2, /*waits_for_others=*/true);
  WatchedWait wait(&fixture);
  wait.AwaitNews();
  CHECK(wait.News(/*looks=*/100).size() > 3);
  CHECK(fixture.round.failure().ok());
  fixture.round.Follow(3);
  wait.News(/*looks=*/8);
  CHECK(fixture.round.failure().ok());
  CHECK(absl::IsDeadlineExceeded(wait.AwaitEnd()));
}

TEST_CASE("every answer begins the limit anew") {
  RoundFixture fixture({"limits.exchange_seconds=10"});
  fixture.PushAll(0);
  WatchedWait wait(&fixture);
  for (const int layer : {0, 2}) {
    for (const uint32_t chunk : fixture.ChunksOf(layer)) {
      wait.News(/*looks=*/10);
      fixture.AnswerChunk(chunk);
    }
  }
  CHECK(wait.AwaitEnd().ok());
}

TEST_CASE("a clock that stands still, and one that leaps, end no wait") {
  RoundFixture fixture({"limits.exchange_seconds=10"});
  fixture.PushAll(0);
  WatchedWait wait(&fixture);
  wait.AwaitNews();
  // As after a machine was suspended, or the process stopped, for an hour; and as the time of day
  // may be set back.
  for (const absl::Duration leap : {absl::Hours(1), -absl::Hours(2), absl::ZeroDuration()}) {
    const std::optional<Stall> stall = wait.Look(leap);
    REQUIRE(stall.has_value());
    CHECK(stall->lasted <= absl::Seconds(5));
  }
  for (const int layer : {0, 2}) fixture.Answer(layer);
  CHECK(wait.AwaitEnd().ok());
}

TEST_CASE("a stall is news after 3 s, whenever it has doubled, and when it is over") {
  RoundFixture fixture;
  const std::vector<absl::Duration> news = NewsOfIteration(&fixture, 12, 25);
  CHECK(news == std::vector<absl::Duration>{absl::Seconds(3), absl::Seconds(6), absl::Seconds(12),
                                            absl::Seconds(24), -absl::Seconds(25)});
}

TEST_CASE("a wait that is over sooner is not news") {
  RoundFixture fixture;
  CHECK(NewsOfIteration(&fixture, 0, 0).empty());
}

TEST_CASE("iterations that wait as long as the last one are not news again") {
  RoundFixture fixture;
  CHECK(NewsOfIteration(&fixture, 0, 10).size() == 3);
  CHECK(NewsOfIteration(&fixture, 1, 10).empty());
  CHECK(NewsOfIteration(&fixture, 2, 10).empty());
  CHECK(NewsOfIteration(&fixture, 3, 20) ==
        std::vector<absl::Duration>{absl::Seconds(20), -absl::Seconds(20)});
  NewsOfIteration(&fixture, 4, 0);
  CHECK(NewsOfIteration(&fixture, 5, 3).size() == 2);
}

TEST_CASE("a stall says which shards have not answered, or not taken, how many chunks") {
  const bool sent = GENERATE(false, true);
  // Under SEQUENTIAL the last chunks wait until the others have been taken.
  RoundFixture fixture({absl::StrCat("exchange.schedule=", sent ? "SEQUENTIAL" : "BACKWARD")});
  fixture.PushAll(0);
  const absl::Span<const uint32_t> of_first = fixture.config.plan().chunks_of_shard(0);
  const size_t waiting = sent ? 1 : 0;
  fixture.AnswerChunk(of_first[0]);
  const std::string verb = sent ? "taken" : "answered";
  WatchedWait wait(&fixture);
  CHECK(wait.AwaitNews().missing == absl::StrCat("shard 0 has not ", verb, " ",
                                                 of_first.size() - 1 - waiting, " of ",
                                                 of_first.size(), " chunks, shard 1 has not ", verb,
                                                 " ", fixture.ChunksOfShard(1) - waiting, " of ",
                                                 fixture.ChunksOfShard(1), " chunks"));
}

TEST_CASE("a stall names three shards at most") {
  RoundFixture fixture(
      {}, R"(shard { address: "c:3" } shard { address: "d:4" } shard { address: "e:5" })");
  fixture.PushAll(0);
  CHECK_THAT(WatchedWait(&fixture).AwaitNews().missing,
             Catch::Contains("shard 2 has") && !Catch::Contains("shard 3 has") &&
                 Catch::EndsWith(", nor have 2 other shards"));
}

}  // namespace evenshard
