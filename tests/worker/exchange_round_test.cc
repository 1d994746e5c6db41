#include "worker/exchange_round.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "common/clock.h"
#include "tests/testing/scratch_folder.h"

namespace ps {
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

Config MakeConfig(const std::vector<std::string>& overrides) {
  absl::StatusOr<Config> config = Config::Parse(kRoundConfig, "test", overrides);
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

struct Fixture {
  explicit Fixture(const std::vector<std::string>& overrides = {}, Trace* trace = nullptr)
      : config(MakeConfig(overrides)),
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
    for (const uint32_t chunk : ChunksOf(layer)) round.Sent(chunk);
  }
  void Answer(int layer) {
    for (const uint32_t chunk : ChunksOf(layer)) round.Answered(chunk);
  }

  const Config config;
  ExchangeRound round;
};

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
  REQUIRE(fixture.round.Begin(7).ok());
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
  REQUIRE(fixture.round.Begin(7).ok());
  const uint32_t chunk = fixture.ChunksOf(2)[0];
  CHECK_FALSE(fixture.round.Awaits(chunk, 7));
  fixture.Push(2);
  CHECK(fixture.round.Awaits(chunk, 7));
  CHECK_FALSE(fixture.round.Awaits(chunk, 6));
  fixture.round.Answered(chunk);
  CHECK_FALSE(fixture.round.Awaits(chunk, 7));
}

TEST_CASE("a wait goes on when another thread tells of the last answer, and of the last sent") {
  Fixture fixture;
  REQUIRE(fixture.round.Begin(0).ok());
  fixture.Push(0);
  std::thread other([&] {
    fixture.Send(0);
    fixture.Answer(0);
  });
  CHECK(fixture.round.AwaitSent().ok());
  CHECK(fixture.round.AwaitLayer(0).ok());
  other.join();
}

TEST_CASE("the news that a chunk was sent may come after its answer, in the next iteration") {
  Fixture fixture({"limits.exchange_seconds=1e-6"});
  REQUIRE(fixture.round.Begin(0).ok());
  fixture.Push(0);
  fixture.Answer(0);
  REQUIRE(fixture.round.Begin(1).ok());
  fixture.Send(0);
  fixture.Push(0);
  fixture.Send(0);
  CHECK(fixture.round.AwaitSent().ok());
  fixture.Push(2);
  CHECK(absl::IsDeadlineExceeded(fixture.round.AwaitSent()));
}

TEST_CASE(
    "a trace has one push and one pull of each layer and iteration, whatever overtakes what") {
  const ScratchFolder folder;
  const Config config = MakeConfig({});
  const RealClock clock;
  auto trace = Trace::Create(folder.Path("trace"), /*rank=*/0, &config.model(), &clock);
  REQUIRE(trace.ok());
  Fixture fixture({}, trace->get());
  // The answers come before the news that the chunks were sent, which come in the next iteration.
  REQUIRE(fixture.round.Begin(0).ok());
  fixture.Push(2);
  fixture.Push(0);
  fixture.Answer(0);
  fixture.Answer(2);
  REQUIRE(fixture.round.Begin(1).ok());
  fixture.Push(2);
  fixture.Send(2);
  fixture.Push(0);
  fixture.Send(0);
  fixture.Send(0);
  fixture.Send(2);
  fixture.Answer(2);
  fixture.Answer(0);
  // A layer's chunks are pushed and sent one by one.
  REQUIRE(fixture.round.Begin(2).ok());
  for (const int layer : {0, 2}) {
    for (const uint32_t chunk : fixture.ChunksOf(layer)) {
      fixture.round.Pushed({chunk});
      fixture.round.Sent(chunk);
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
  REQUIRE(fixture.round.Begin(0).ok());
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
  CHECK(fixture.round.Begin(1) == gone);
}

TEST_CASE("where nothing moves for the limit, the error names shard, chunk and iteration") {
  Fixture fixture({"limits.exchange_seconds=1e-6"});
  REQUIRE(fixture.round.Begin(3).ok());
  fixture.Push(2);
  fixture.Push(0);
  fixture.Answer(0);
  const uint32_t missing = fixture.ChunksOf(2)[0];
  const absl::Status status = fixture.round.AwaitLayer(2);
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()),
             Catch::StartsWith("shard 1 has not answered chunk " + std::to_string(missing) +
                               " of iteration 3 for ") &&
                 Catch::EndsWith(" (limits.exchange_seconds)"));
  CHECK(fixture.round.Begin(4) == status);
}

}  // namespace ps
