#include "worker/exchange/core/exchange_round.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

// fc1 has the chunks 0 to 4 (weight) and 5, on both shards; fc2, layer 2, has 6 and 7.
constexpr char kRoundConfig[] = R"(
  model {
    input { channels: 16 height: 1 width: 1 }
    layer { name: "fc1" linear { out_features: 16 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 2 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "a:1" }
  shard { address: "b:2" }
  update { policy: SYNC }
  training { iterations: 1 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 256 }
)";

PlannedConfig MakeConfig(const std::vector<std::string>& overrides, const std::string& more = "") {
  absl::StatusOr<PlannedConfig> config =
      PlannedConfig::Parse(absl::StrCat(kRoundConfig, more), "test", overrides);
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

struct Fixture {
  explicit Fixture(const std::vector<std::string>& overrides = {}, const std::string& more = "",
                   Trace* trace = nullptr)
      : config(MakeConfig(overrides, more)),
        round(
            config, [](int shard) { return "shard " + std::to_string(shard); }, trace) {}

  std::vector<uint32_t> ChunksOf(int layer) const {
    std::vector<uint32_t> chunks;
    for (const Chunk& chunk : config.plan().chunks()) {
      const int tensor = chunk.tensor - config.model().layers()[layer].first_tensor;
      if (tensor >= 0 && tensor < config.model().layers()[layer].tensor_count) {
        chunks.push_back(chunk.id);
      }
    }
    return chunks;
  }
  void Push(int layer) { round.Pushed(ChunksOf(layer)); }
  void Send(int layer) {
    for (const uint32_t chunk : ChunksOf(layer)) SendChunk(chunk);
  }
  void Answer(int layer) {
    for (const uint32_t chunk : ChunksOf(layer)) AnswerChunk(chunk);
  }
  absl::Status Begin(uint64_t begun) {
    iteration = begun;
    return round.Begin(begun);
  }
  void SendChunk(uint32_t chunk) { round.Sent(chunk, iteration); }
  void AnswerChunk(uint32_t chunk) {
    const absl::StatusOr<bool> counts = round.Claim(chunk, iteration, /*view=*/0);
    REQUIRE(counts.ok());
    if (*counts) round.Answered(chunk, /*version=*/iteration + 1);
  }
  // Begins an iteration and pushes everything.
  void PushAll(uint64_t begun) {
    REQUIRE(Begin(begun).ok());
    for (const int layer : {2, 0}) Push(layer);
  }
  size_t ChunksOfShard(int shard) const { return config.plan().chunks_of_shard(shard).size(); }

  const PlannedConfig config;
  FakeClock clock;
  ExchangeRound round;
  uint64_t iteration = 0;
};

// Waits on a thread, and looks at the round whenever a second of the fixture's clock has passed.
class WatchedWait {
 public:
  explicit WatchedWait(Fixture* fixture,
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
  Fixture& fixture_;
  absl::Status outcome_ = absl::UnknownError("has not ended");
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// Lets a wait for an iteration last `seconds` from its first look; what of it was news, with
// its end, which is negative.
std::vector<absl::Duration> NewsOfIteration(Fixture* fixture, uint64_t iteration, int seconds) {
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
  return news;
}

}  // namespace

TEST_CASE("a round that has not begun waits for nothing") {
  Fixture fixture;
  CHECK(fixture.round.AwaitLayer(0).ok());
  CHECK(fixture.round.AwaitAll().ok());
  CHECK(fixture.round.AwaitSent().ok());
  CHECK(fixture.round.AllAnswered());
}

TEST_CASE("a layer is there when its own chunks are answered") {
  Fixture fixture;
  REQUIRE(fixture.Begin(7).ok());
  CHECK(fixture.round.AwaitLayer(1).ok());  // has no tensors
  fixture.Push(2);
  fixture.Push(0);
  fixture.Answer(0);
  CHECK(fixture.round.AwaitLayer(0).ok());
  CHECK_FALSE(fixture.round.AllAnswered());
  fixture.Answer(2);
  CHECK(fixture.round.AwaitLayer(2).ok());
  CHECK(fixture.round.AllAnswered());
  CHECK(fixture.round.AwaitAll().ok());
}

TEST_CASE("only what was pushed in this iteration is awaited") {
  Fixture fixture;
  REQUIRE(fixture.Begin(7).ok());
  const uint32_t chunk = fixture.ChunksOf(2)[0];
  CHECK(absl::IsInternal(fixture.round.Claim(chunk, 7, 0).status()));
  fixture.Push(2);
  CHECK(absl::IsInternal(fixture.round.Claim(chunk, 8, 0).status()));
  CHECK_FALSE(*fixture.round.Claim(chunk, 6, 0));  // late
  CHECK(*fixture.round.Claim(chunk, 7, 0));
  CHECK_FALSE(*fixture.round.Claim(chunk, 7, 0));  // twice
  fixture.round.Answered(chunk, 1);
  CHECK_FALSE(*fixture.round.Claim(chunk, 7, 0));
}

TEST_CASE("a late report that a chunk was sent counts for its own iteration only") {
  Fixture fixture;
  fixture.PushAll(0);
  for (const int layer : {0, 2}) fixture.Answer(layer);
  fixture.PushAll(1);
  for (const int layer : {0, 2}) {
    for (const uint32_t chunk : fixture.ChunksOf(layer)) fixture.round.Sent(chunk, /*iteration=*/0);
  }
  CHECK(absl::IsDeadlineExceeded(WatchedWait(&fixture, &ExchangeRound::AwaitSent).AwaitEnd()));
}

TEST_CASE("what is not answered is pushed again, and its send counts once") {
  Fixture fixture;
  REQUIRE(fixture.Begin(3).ok());
  fixture.Push(0);
  fixture.Push(2);
  const std::vector<uint32_t> of_layer = fixture.ChunksOf(2);
  const uint32_t answered = of_layer[0], pending = of_layer[1];
  CHECK_FALSE(fixture.round.ToSend(pending)->again);
  fixture.SendChunk(pending);
  fixture.AnswerChunk(answered);
  std::vector<uint32_t> again;
  for (const int shard : {0, 1}) {
    const std::vector<uint32_t> of_shard = fixture.round.PushAgain(shard);
    again.insert(again.end(), of_shard.begin(), of_shard.end());
  }
  CHECK(again.size() == fixture.config.plan().chunks().size() - 1);
  CHECK(std::count(again.begin(), again.end(), answered) == 0);
  CHECK_FALSE(fixture.round.ToSend(answered).has_value());
  CHECK(fixture.round.ToSend(pending)->again);
  CHECK(fixture.round.ToSend(pending)->iteration == 3);
  fixture.SendChunk(pending);
  fixture.Send(0);
  fixture.Send(2);
  CHECK(fixture.round.AwaitSent().ok());
  fixture.Answer(0);
  fixture.Answer(2);
  CHECK(fixture.round.AwaitAll().ok());
  REQUIRE(fixture.Begin(4).ok());
  fixture.Push(2);
  CHECK_FALSE(fixture.round.ToSend(pending)->again);
  CHECK(fixture.round.ToSend(pending)->base_version == 4);
}

TEST_CASE("answers of an older view do not count, and a newer one's view is waited for") {
  Fixture fixture;
  fixture.round.Follow(5);
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(2);
  const uint32_t chunk = fixture.ChunksOf(2)[0];
  CHECK(fixture.round.ToSend(chunk)->view == 5);
  CHECK_FALSE(*fixture.round.Claim(chunk, 0, 4));
  CHECK(*fixture.round.Claim(chunk, 0, 7));
  fixture.round.Answered(chunk, 1);
  std::thread other([&] { fixture.round.Follow(7); });
  CHECK(fixture.round.AwaitView().ok());
  other.join();
  CHECK(fixture.round.ToSend(fixture.ChunksOf(2)[1])->view == 7);
  CHECK_FALSE(fixture.round.Settled());
  fixture.round.GiveUp();
  fixture.Push(0);
  CHECK_FALSE(fixture.round.Settled());
  fixture.round.GiveUp();
  CHECK(fixture.round.Settled());
  CHECK(fixture.round.AwaitAll().ok());
}

TEST_CASE("a view that does not come ends the wait for it") {
  Fixture fixture({"limits.exchange_seconds=10"});
  REQUIRE(fixture.Begin(2).ok());
  fixture.Push(0);
  const uint32_t chunk = fixture.ChunksOf(0)[0];
  REQUIRE(*fixture.round.Claim(chunk, 2, 9));
  fixture.round.Answered(chunk, 1);
  CHECK(WatchedWait(&fixture, &ExchangeRound::AwaitView).AwaitEnd() ==
        absl::DeadlineExceededError("iteration 2: view 9, which a shard follows, has not come for "
                                    "12s (limits.exchange_seconds)"));
}

TEST_CASE("a round that was reset begins anew") {
  Fixture fixture;
  REQUIRE(fixture.Begin(8).ok());
  fixture.Push(0);
  fixture.Push(2);
  fixture.Send(2);
  fixture.round.Fail(absl::AbortedError("back"));
  CHECK(fixture.round.AwaitAll() == absl::AbortedError("back"));
  fixture.round.Reset();
  CHECK(fixture.round.failure().ok());
  CHECK(fixture.round.Settled());
  CHECK(fixture.round.AwaitSent().ok());
  fixture.PushAll(2);
  for (const int layer : {0, 2}) fixture.Answer(layer);
  CHECK(fixture.round.AwaitAll().ok());
}

TEST_CASE("a wait ends when another thread reports the last answer, or the last send") {
  Fixture fixture;
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(0);
  std::thread other([&] {
    fixture.Send(0);
    fixture.Answer(0);
  });
  const absl::Status sent = fixture.round.AwaitSent();
  const absl::Status answered = fixture.round.AwaitLayer(0);
  other.join();  // before any CHECK, of which Catch allows one thread's at a time
  CHECK(sent.ok());
  CHECK(answered.ok());
}

TEST_CASE("the report that a chunk was sent may come after its answer, in the next iteration") {
  Fixture fixture;
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(0);
  fixture.Answer(0);
  REQUIRE(fixture.Begin(1).ok());
  fixture.Push(0);
  for (const uint32_t chunk : fixture.ChunksOf(0)) fixture.round.Sent(chunk, /*iteration=*/0);
  fixture.Send(0);
  CHECK(fixture.round.AwaitSent().ok());
  fixture.Push(2);
  CHECK(absl::IsDeadlineExceeded(WatchedWait(&fixture, &ExchangeRound::AwaitSent).AwaitEnd()));
}

TEST_CASE(
    "a trace has one push and one pull of each layer and iteration, whatever overtakes what") {
  const ScratchFolder folder;
  const PlannedConfig config = MakeConfig({});
  const RealClock clock;
  auto trace = Trace::Create(folder.Path("trace"), /*rank=*/0, &config.model(), &clock);
  REQUIRE(trace.ok());
  Fixture fixture({}, "", trace->get());
  // The answers come before the news that the chunks were sent, which come in the next iteration.
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(2);
  fixture.Push(0);
  fixture.Answer(0);
  fixture.Answer(2);
  REQUIRE(fixture.Begin(1).ok());
  fixture.Push(2);
  fixture.Send(2);
  fixture.Push(0);
  for (const int layer : {0, 2}) {
    for (const uint32_t chunk : fixture.ChunksOf(layer)) fixture.round.Sent(chunk, 0);
  }
  fixture.Send(0);
  fixture.Answer(2);
  fixture.Answer(0);
  // A layer's chunks are pushed and sent one by one.
  REQUIRE(fixture.Begin(2).ok());
  for (const int layer : {0, 2}) {
    for (const uint32_t chunk : fixture.ChunksOf(layer)) {
      fixture.round.Pushed({chunk});
      fixture.SendChunk(chunk);
    }
    fixture.Answer(layer);
  }
  REQUIRE((*trace)->Close().ok());

  std::map<std::string, std::string> phases;
  for (const nlohmann::json& event : nlohmann::json::parse(folder.Read("trace"))) {
    if (event.at("ph") == "M") continue;
    phases[event.at("name").get<std::string>() + event.at("args").at("iteration").dump()] +=
        event.at("ph");
  }
  std::map<std::string, std::string> expected;
  for (const std::string what : {"push", "pull"}) {
    for (const std::string layer : {"fc1", "fc2"}) {
      for (const std::string iteration : {"0", "1", "2"}) {
        expected[what + " " + layer + iteration] = "be";
      }
    }
  }
  CHECK(phases == expected);
}

TEST_CASE("the first failure ends every wait, and every later round") {
  Fixture fixture;
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(0);
  std::thread other([&] {
    fixture.round.Fail(absl::UnavailableError("gone"));
    fixture.round.Fail(absl::InternalError("later"));
  });
  const absl::Status gone = absl::UnavailableError("gone");
  CHECK(fixture.round.AwaitLayer(0) == gone);
  other.join();
  CHECK(fixture.round.AwaitAll() == gone);
  CHECK(fixture.round.AwaitSent() == gone);
  CHECK(fixture.Begin(1) == gone);
}

TEST_CASE("if nothing moves for the limit, the error names the shards and the iteration") {
  Fixture fixture({"limits.exchange_seconds=10"});
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
  Fixture fixture({"limits.exchange_seconds=10"});
  fixture.PushAll(0);
  fixture.round.Follow(2, /*waits_for_absent=*/true);
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
  Fixture fixture({"limits.exchange_seconds=10"});
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
  Fixture fixture({"limits.exchange_seconds=10"});
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
  Fixture fixture;
  const std::vector<absl::Duration> news = NewsOfIteration(&fixture, 12, 25);
  CHECK(news == std::vector<absl::Duration>{absl::Seconds(3), absl::Seconds(6), absl::Seconds(12),
                                            absl::Seconds(24), -absl::Seconds(25)});
}

TEST_CASE("a wait that is over sooner is not news") {
  Fixture fixture;
  CHECK(NewsOfIteration(&fixture, 0, 0).empty());
}

TEST_CASE("iterations that wait as long as the last one are not news again") {
  Fixture fixture;
  CHECK(NewsOfIteration(&fixture, 0, 10).size() == 3);
  CHECK(NewsOfIteration(&fixture, 1, 10).empty());
  CHECK(NewsOfIteration(&fixture, 2, 10).empty());
  CHECK(NewsOfIteration(&fixture, 3, 20) ==
        std::vector<absl::Duration>{absl::Seconds(20), -absl::Seconds(20)});
  NewsOfIteration(&fixture, 4, 0);
  CHECK(NewsOfIteration(&fixture, 5, 3).size() == 2);
}

TEST_CASE("a stall says which shards have not answered, or not taken, how many chunks") {
  Fixture fixture;
  fixture.PushAll(0);
  const absl::Span<const uint32_t> of_first = fixture.config.plan().chunks_of_shard(0);
  fixture.AnswerChunk(of_first[0]);
  fixture.SendChunk(of_first[0]);
  const bool sent = GENERATE(false, true);
  const std::string verb = sent ? "taken" : "answered";
  WatchedWait wait(&fixture, sent ? &ExchangeRound::AwaitSent : &ExchangeRound::AwaitAll);
  CHECK(wait.AwaitNews().missing ==
        absl::StrCat("shard 0 has not ", verb, " ", of_first.size() - 1, " of ", of_first.size(),
                     " chunks, shard 1 has not ", verb, " ", fixture.ChunksOfShard(1), " of ",
                     fixture.ChunksOfShard(1), " chunks"));
}

TEST_CASE("a stall names three shards at most") {
  Fixture fixture({},
                  R"(shard { address: "c:3" } shard { address: "d:4" } shard { address: "e:5" })");
  fixture.PushAll(0);
  CHECK_THAT(WatchedWait(&fixture).AwaitNews().missing,
             Catch::Contains("shard 2 has") && !Catch::Contains("shard 3 has") &&
                 Catch::EndsWith(", nor have 2 other shards"));
}

}  // namespace evenshard
