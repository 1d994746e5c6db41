#include "worker/exchange/core/exchange_round.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/testing/scratch_folder.h"
#include "tests/worker/exchange/core/round_fixture.h"

namespace evenshard {

using Phase = ExchangeRound::Phase;

TEST_CASE("a round that has not begun waits for nothing") {
  RoundFixture fixture;
  CHECK(fixture.round.AwaitLayer(0).ok());
  CHECK(fixture.round.AwaitTensor(3).ok());
  CHECK(fixture.round.AwaitAll().ok());
  CHECK(fixture.round.AllAnswered());
  CHECK(fixture.round.phase() == Phase::kIdle);
}

TEST_CASE("a push says how stale the last gradient was, the same at all chunks") {
  // `most` updates in an iteration at one chunk, one fewer at the others.
  const auto exchange = [](RoundFixture& fixture, uint64_t iteration, uint64_t most) {
    fixture.PushAll(iteration);
    std::set<uint32_t> said;
    for (const int shard : {0, 1}) {
      for (const auto& [chunk, header] : fixture.TakeAll(shard)) {
        said.insert(header.staleness);
        CHECK(fixture.Claim(chunk, iteration).value());
        fixture.round.Answered(chunk, header.base_version + (chunk == 1 ? most : most - 1));
      }
    }
    fixture.round.End();
    REQUIRE(said.size() == 1);
    return *said.begin();
  };
  SECTION("ASYNC") {
    RoundFixture fixture({"workers=4", "update.policy=ASYNC"});
    CHECK(exchange(fixture, 0, 3) == 3);  // all others may be faster
    CHECK(exchange(fixture, 1, 7) == 2);
    CHECK(exchange(fixture, 2, 1) == 6);
    // What a pull brings makes the next gradient no staler.
    for (uint32_t chunk = 0; chunk < fixture.config.plan().chunks().size(); ++chunk) {
      fixture.round.TakePulled(chunk, /*version=*/100, /*iteration=*/0, {});
    }
    CHECK(exchange(fixture, 3, 5) == 0);
    CHECK(exchange(fixture, 4, 1) == 4);
  }
  SECTION("SYNC") {
    RoundFixture fixture({"workers=4"});
    CHECK(exchange(fixture, 0, 3) == 0);
    CHECK(exchange(fixture, 1, 3) == 0);
  }
}

TEST_CASE("the round knows where the worker is in its iteration") {
  RoundFixture fixture;
  fixture.round.StartAt(7);
  CHECK(fixture.round.next_iteration() == 7);
  CHECK(fixture.round.Push({0}) == absl::FailedPreconditionError("no iteration has begun"));
  fixture.round.End();  // none has begun
  CHECK(fixture.round.next_iteration() == 7);
  REQUIRE(fixture.Begin(7).ok());
  CHECK(fixture.round.phase() == Phase::kPushing);
  fixture.Push(2);
  CHECK(fixture.round.phase() == Phase::kPushing);
  fixture.Push(0);
  CHECK(fixture.round.phase() == Phase::kPushed);
  CHECK_THAT(std::string(fixture.Begin(8).message()), Catch::Contains("an iteration has begun"));
  fixture.iteration = 7;
  for (const int layer : {0, 2}) fixture.Answer(layer);
  CHECK(fixture.round.phase() == Phase::kPushed);
  CHECK(fixture.round.next_iteration() == 7);
  fixture.round.End();
  CHECK(fixture.round.phase() == Phase::kIdle);
  CHECK(fixture.round.next_iteration() == 8);
  CHECK(fixture.Begin(8).ok());
}

TEST_CASE("a tensor is pushed once in an iteration, and a refused call pushes none") {
  RoundFixture fixture;
  REQUIRE(fixture.Begin(0).ok());
  REQUIRE(fixture.round.Push({3}).ok());
  const std::vector<std::vector<int>> bad = {{2, 3}, {2, 2}};
  for (const std::vector<int>& tensors : bad) {
    CHECK_THAT(std::string(fixture.round.Push(tensors).message()),
               Catch::Contains("has been pushed in this iteration already"));
  }
  CHECK(fixture.round.Push({2, 1, 0}).ok());
}

TEST_CASE("what is never going to come is not waited for") {
  RoundFixture fixture({"exchange.schedule=" + GENERATE(std::string("BACKWARD"), "SEQUENTIAL")});
  const bool is_early = fixture.config.proto().exchange().schedule() == ExchangeConfig::BACKWARD;
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(2);
  CHECK(fixture.round.AwaitTensor(0) ==
        absl::FailedPreconditionError(
            absl::StrCat(is_early ? "1 tensor" : "2 tensors",
                         " of the iteration must be pushed before this wait, first fc1/weight")));
  CHECK(absl::IsFailedPrecondition(fixture.round.AwaitLayer(0)));
  CHECK(absl::IsFailedPrecondition(fixture.round.AwaitAll()));
  if (is_early) fixture.Answer(2);
  // Under SEQUENTIAL nothing leaves before everything is pushed.
  CHECK(fixture.round.AwaitTensor(2).ok() == is_early);
  CHECK(fixture.round.AwaitLayer(2).ok() == is_early);
}

TEST_CASE("a layer is there when its own chunks are answered") {
  RoundFixture fixture;
  REQUIRE(fixture.Begin(7).ok());
  CHECK(fixture.round.AwaitLayer(1).ok());  // has no tensors
  fixture.Push(2);
  fixture.Push(0);
  fixture.Answer(0);
  CHECK(fixture.round.AwaitLayer(0).ok());
  CHECK(fixture.round.TensorAnswered(0));
  CHECK_FALSE(fixture.round.TensorAnswered(2));
  CHECK_FALSE(fixture.round.AllAnswered());
  fixture.Answer(2);
  CHECK(fixture.round.AwaitLayer(2).ok());
  CHECK(fixture.round.AllAnswered());
  CHECK(fixture.round.AwaitAll().ok());
}

TEST_CASE("only what was pushed in this iteration is awaited") {
  RoundFixture fixture;
  REQUIRE(fixture.Begin(7).ok());
  const uint32_t chunk = fixture.ChunksOf(2)[0];
  CHECK(absl::IsInternal(fixture.Claim(chunk, 7).status()));
  fixture.Push(2);
  CHECK(absl::IsInternal(fixture.Claim(chunk, 8).status()));
  const int shard = fixture.config.plan().chunks()[chunk].shard;
  CHECK(
      absl::IsInternal(fixture.round.Claim(1 - shard, {.iteration = 7, .chunk = chunk}).status()));
  CHECK(absl::IsInternal(fixture.round.Claim(0, {.iteration = 7, .chunk = 99}).status()));
  CHECK_FALSE(*fixture.Claim(chunk, 6));  // late
  CHECK_FALSE(fixture.round.HasAnswered(shard));
  CHECK(*fixture.Claim(chunk, 7));
  CHECK(fixture.round.HasAnswered(shard));
  CHECK_FALSE(*fixture.Claim(chunk, 7));  // twice
  fixture.round.Answered(chunk, 1);
  CHECK_FALSE(*fixture.Claim(chunk, 7));
}

TEST_CASE("a difference counts for the parameters before it only") {
  RoundFixture fixture;
  REQUIRE(fixture.Begin(7).ok());
  const uint32_t chunk = fixture.ChunksOf(2)[0];
  const int64_t size = fixture.config.plan().chunks()[chunk].size;
  std::vector<float> pulled(size);
  fixture.round.TakePulled(chunk, 7, 7, absl::MakeSpan(pulled));
  fixture.Push(2);
  ParameterHeader answer = {
      .iteration = 7, .chunk = chunk, .version = 9, .encoding = INT4, .is_difference = true};
  const int shard = fixture.config.plan().chunks()[chunk].shard;
  const absl::Status refused = fixture.round.Claim(shard, answer).status();
  CHECK(absl::IsInternal(refused));
  CHECK_THAT(
      std::string(refused.message()),
      Catch::Contains("with the difference that led to version 9; the worker has version 7"));
  answer.version = 8;
  const uint64_t before = fixture.round.traffic().bytes_in;
  CHECK(*fixture.round.Claim(shard, answer));
  CHECK(fixture.round.traffic().bytes_in - before ==
        static_cast<uint64_t>(EncodedBytes(INT4, size)));
}

TEST_CASE("a message says what this worker pushes") {
  RoundFixture fixture;
  fixture.round.Follow(5);
  std::vector<float> pulled(1);
  fixture.round.TakePulled(6, 40, 40, absl::MakeSpan(pulled));
  const std::vector<Hyperparameters> rates = {{.learning_rate = 1},
                                              {.learning_rate = 2},
                                              {.learning_rate = 3, .momentum = 0.5f},
                                              {.learning_rate = 4}};
  REQUIRE(fixture.round.Begin(9, {.hyperparameters = rates}).ok());
  REQUIRE(fixture.round.Push({2}).ok());
  REQUIRE(fixture.round.Push({0, 1}, Contribution::kZeros).ok());
  REQUIRE(fixture.round.Push({3}, Contribution::kNothing).ok());
  std::map<uint32_t, GradientHeader> taken = fixture.TakeAll(0);
  taken.merge(fixture.TakeAll(1));
  REQUIRE(taken.size() == 8);
  for (const auto& [chunk, header] : taken) {
    CHECK(header.worker == 1);
    CHECK(header.incarnation == 77);
    CHECK(header.iteration == 9);
    CHECK(header.view == 5);
    CHECK(header.base_version == (chunk == 6 ? 40 : 0));
    const int tensor = fixture.config.plan().chunks()[chunk].tensor;
    CHECK(header.skip == (tensor == 3));
    CHECK(header.absent == (tensor < 2));
    CHECK(header.hyperparameters.learning_rate ==
          (chunk == 6 ? std::optional(3.0f) : std::nullopt));
    CHECK_FALSE(header.hold);
  }
}

TEST_CASE("a tensor was absent everywhere if each of its answers says so") {
  RoundFixture fixture;
  for (const bool last : {true, false}) {
    const uint64_t iteration = fixture.round.next_iteration();
    REQUIRE(fixture.round.Begin(iteration).ok());
    REQUIRE(fixture.round.Push({0, 1, 2, 3}, Contribution::kZeros).ok());
    for (const int shard : {0, 1}) fixture.TakeAll(shard);
    const auto of_first = fixture.config.plan().chunks_of_tensor(0);
    for (const Chunk& chunk : fixture.config.plan().chunks()) {
      const bool all_absent = chunk.tensor == 0 && (last || chunk.id != of_first.back());
      const auto counts = fixture.round.Claim(
          chunk.shard, {.iteration = iteration, .chunk = chunk.id, .all_absent = all_absent});
      REQUIRE((counts.ok() && *counts));
      fixture.round.Answered(chunk.id, 0);
    }
    CHECK(fixture.round.TensorAllAbsent(0) == last);
    CHECK_FALSE(fixture.round.TensorAllAbsent(1));
    fixture.round.End();
  }
}

TEST_CASE("a worker that skips the iteration skips every push") {
  RoundFixture fixture;
  REQUIRE(fixture.round.Begin(0, {.skip = true}).ok());
  REQUIRE(fixture.round.Push({0, 1}).ok());
  REQUIRE(fixture.round.Push({2, 3}, Contribution::kZeros).ok());
  std::map<uint32_t, GradientHeader> taken = fixture.TakeAll(0);
  taken.merge(fixture.TakeAll(1));
  REQUIRE(taken.size() == 8);
  for (const auto& [chunk, header] : taken) {
    CHECK(header.skip);
    CHECK_FALSE(header.absent);
  }
}

TEST_CASE("under SEQUENTIAL the last chunks leave when all others have been sent") {
  RoundFixture fixture({"exchange.schedule=SEQUENTIAL"});
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(0);
  CHECK(fixture.TakeAll(0).empty());
  fixture.Push(2);
  const std::map<uint32_t, GradientHeader> first = fixture.TakeAll(0);
  const std::map<uint32_t, GradientHeader> second = fixture.TakeAll(1);
  CHECK(first.size() == fixture.ChunksOfShard(0) - 1);
  CHECK(second.size() == fixture.ChunksOfShard(1) - 1);
  fixture.wakes = 0;
  for (const auto& taken : {first, second}) {
    for (const auto& [chunk, header] : taken) {
      CHECK(header.hold);
      CHECK(fixture.wakes == 0);
      CHECK(fixture.TakeAll(0).empty());
      // Reports of another iteration do not count.
      fixture.SendChunk(chunk, 3);
      fixture.SendChunk(chunk, 0);
    }
  }
  CHECK(fixture.wakes > 0);
  for (const int shard : {0, 1}) {
    const std::map<uint32_t, GradientHeader> last = fixture.TakeAll(shard);
    REQUIRE(last.size() == 1);
    CHECK(last.begin()->first == fixture.config.plan().chunks_of_shard(shard).back());
    CHECK_FALSE(last.begin()->second.hold);
  }
}

TEST_CASE("an answer says that a chunk was sent, for the last chunks too") {
  RoundFixture fixture({"exchange.schedule=SEQUENTIAL"});
  fixture.PushAll(0);
  for (const int shard : {0, 1}) {
    for (const auto& [chunk, header] : fixture.TakeAll(shard)) {
      CHECK(fixture.TakeAll(0).empty());
      fixture.AnswerChunk(chunk);
    }
  }
  CHECK(fixture.TakeAll(0).size() == 1);
  CHECK(fixture.TakeAll(1).size() == 1);
}

TEST_CASE("what is not answered is sent again on a new connection, and its send counts once") {
  RoundFixture fixture;
  fixture.PushAll(3);
  const std::vector<uint32_t> of_layer = fixture.ChunksOf(2);
  const uint32_t answered = of_layer[0], pending = of_layer[1];
  for (const int shard : {0, 1}) fixture.TakeAll(shard);
  fixture.SendChunk(pending, 3);
  fixture.AnswerChunk(answered);
  for (const int shard : {0, 1}) fixture.round.Close(shard);
  CHECK(fixture.TakeAll(0).empty());
  CHECK_FALSE(fixture.round.HasAnswered(0));
  for (const int shard : {0, 1}) fixture.round.Open(shard);
  std::map<uint32_t, GradientHeader> again = fixture.TakeAll(0);
  again.merge(fixture.TakeAll(1));
  CHECK(again.size() == fixture.config.plan().chunks().size() - 1);
  CHECK(again.count(answered) == 0);
  fixture.SendChunk(pending, 3);
  fixture.AnswerAll();
  CHECK(fixture.round.AwaitAll().ok());
  fixture.PushAll(4);
  again = fixture.TakeAll(fixture.config.plan().chunks()[pending].shard);
  CHECK(again.at(pending).base_version == 4);
}

TEST_CASE("what is answered before its turn to be sent again is not sent") {
  RoundFixture fixture;
  fixture.PushAll(0);
  for (const int shard : {0, 1}) {
    fixture.TakeAll(shard);
    fixture.round.Close(shard);
    fixture.round.Open(shard);
  }
  fixture.Answer(0);
  fixture.Answer(2);
  CHECK(fixture.TakeAll(0).empty());
  CHECK(fixture.TakeAll(1).empty());
}

TEST_CASE("answers of an older view do not count, and a newer one's view is waited for") {
  RoundFixture fixture;
  fixture.round.Follow(5);
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(2);
  const uint32_t chunk = fixture.ChunksOf(2)[0];
  CHECK_FALSE(*fixture.Claim(chunk, 0, 4));
  CHECK(*fixture.Claim(chunk, 0, 7));
  fixture.round.Answered(chunk, 1);
  std::thread other([&] { fixture.round.Follow(7); });
  CHECK(fixture.round.AwaitView().ok());
  other.join();
  CHECK_FALSE(fixture.round.Settled());
}

TEST_CASE("while nobody answers, what is pushed is taken for answered") {
  RoundFixture fixture({"exchange.schedule=" + GENERATE(std::string("BACKWARD"), "SEQUENTIAL")});
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(2);
  fixture.round.SetAbandoned(true);
  CHECK_FALSE(fixture.round.Settled());
  fixture.Push(0);
  CHECK(fixture.round.Settled());
  CHECK(fixture.round.AwaitAll().ok());
  CHECK(fixture.round.ChunksAfter(0) == 0);
  CHECK(fixture.TakeAll(0).empty());
  fixture.round.End();
  fixture.round.SetAbandoned(false);
  fixture.PushAll(1);
  CHECK_FALSE(fixture.round.AllAnswered());
}

TEST_CASE("a round that was reset begins anew") {
  RoundFixture fixture({"exchange.schedule=" + GENERATE(std::string("BACKWARD"), "SEQUENTIAL")});
  fixture.PushAll(8);
  fixture.Send(2);
  fixture.round.Fail(absl::AbortedError("back"));
  CHECK(fixture.round.AwaitAll() == absl::AbortedError("back"));
  fixture.round.Reset();
  CHECK(fixture.round.failure().ok());
  CHECK(fixture.round.Settled());
  CHECK(fixture.round.phase() == Phase::kIdle);
  for (const int shard : {0, 1}) {
    fixture.round.Close(shard);
    fixture.round.Open(shard);
  }
  fixture.PushAll(2);
  for (int turn = 0; turn < 2; ++turn) {  // under SEQUENTIAL the last chunks follow
    for (const int shard : {0, 1}) {
      for (const auto& [chunk, header] : fixture.TakeAll(shard)) fixture.SendChunk(chunk, 2);
    }
  }
  fixture.AnswerAll();
  CHECK(fixture.round.next_iteration() == 3);
}

TEST_CASE("a wait ends when another thread reports the last answer") {
  RoundFixture fixture;
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(0);
  std::thread other([&] { fixture.Answer(0); });
  const absl::Status answered = fixture.round.AwaitLayer(0);
  other.join();  // before any CHECK, of which Catch allows one thread's at a time
  CHECK(answered.ok());
}

TEST_CASE(
    "a trace has one push and one pull of each layer and iteration, whatever overtakes what") {
  const ScratchFolder folder;
  const PlannedConfig config = MakeRoundConfig({});
  const RealClock clock;
  auto trace = Trace::Create(folder.Path("trace"), /*rank=*/0, &config.model(), &clock);
  REQUIRE(trace.ok());
  RoundFixture fixture({}, "", trace->get());
  // The answers come before the news that the chunks were sent, which come in the next iteration.
  REQUIRE(fixture.Begin(0).ok());
  fixture.Push(2);
  fixture.Push(0);
  fixture.AnswerAll();
  REQUIRE(fixture.Begin(1).ok());
  fixture.Push(2);
  fixture.Send(2);
  fixture.Push(0);
  for (const int layer : {0, 2}) {
    for (const uint32_t chunk : fixture.ChunksOf(layer)) fixture.SendChunk(chunk, 0);
  }
  fixture.Send(0);
  fixture.AnswerAll();
  // A layer's tensors are pushed and sent one by one.
  REQUIRE(fixture.Begin(2).ok());
  for (const int layer : {0, 2}) {
    for (const int tensor : fixture.TensorsOf(layer)) {
      REQUIRE(fixture.round.Push({tensor}).ok());
      for (const uint32_t chunk : fixture.config.plan().chunks_of_tensor(tensor)) {
        fixture.SendChunk(chunk, 2);
      }
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
  RoundFixture fixture;
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
  CHECK(fixture.round.AwaitTensor(0) == gone);
  CHECK(fixture.Begin(1) == gone);
}

}  // namespace evenshard
