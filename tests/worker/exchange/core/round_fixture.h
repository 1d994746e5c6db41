#ifndef EVENSHARD_TESTS_WORKER_EXCHANGE_CORE_ROUND_FIXTURE_H_
#define EVENSHARD_TESTS_WORKER_EXCHANGE_CORE_ROUND_FIXTURE_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/planned_config.h"
#include "tests/testing/fake_clock.h"
#include "worker/exchange/core/exchange_round.h"

namespace evenshard {

// fc1 has the chunks 0 to 4 (weight) and 5, on both shards; fc2, layer 2, has 6 and 7.
inline constexpr char kRoundConfig[] = R"(
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
  limits { chunk_bytes: 256 connections: 1 }
)";

inline PlannedConfig MakeRoundConfig(const std::vector<std::string>& overrides,
                                     const std::string& more = "") {
  absl::StatusOr<PlannedConfig> config =
      PlannedConfig::Parse(absl::StrCat(kRoundConfig, more), "test", overrides);
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

// A round of rank 1 whose streams and shards the test plays.
struct RoundFixture {
  explicit RoundFixture(const std::vector<std::string>& overrides = {},
                        const std::string& more = "", Trace* trace = nullptr)
      : config(MakeRoundConfig(overrides, more)),
        round({.config = &config,
               .rank = 1,
               .incarnation = 77,
               .shard_name = [](int shard) { return "shard " + std::to_string(shard); },
               .wake = [this](int) { ++wakes; },
               .trace = trace}) {
    for (int shard = 0; shard < config.shards(); ++shard) round.Open(shard);
  }

  std::vector<int> TensorsOf(int layer) const {
    const Layer& info = config.model().layers()[layer];
    std::vector<int> tensors(info.tensor_count);
    std::iota(tensors.begin(), tensors.end(), info.first_tensor);
    return tensors;
  }
  std::vector<uint32_t> ChunksOf(int layer) const {
    std::vector<uint32_t> chunks;
    for (const int tensor : TensorsOf(layer)) {
      const auto of_tensor = config.plan().chunks_of_tensor(tensor);
      chunks.insert(chunks.end(), of_tensor.begin(), of_tensor.end());
    }
    return chunks;
  }
  void Push(int layer) { REQUIRE(round.Push(TensorsOf(layer)).ok()); }
  void Send(int layer) {
    for (const uint32_t chunk : ChunksOf(layer)) SendChunk(chunk, iteration);
  }
  void Answer(int layer) {
    for (const uint32_t chunk : ChunksOf(layer)) AnswerChunk(chunk);
  }
  absl::Status Begin(uint64_t begun) {
    iteration = begun;
    return round.Begin(begun);
  }
  void SendChunk(uint32_t chunk, uint64_t of_iteration) {
    round.Sent({{.iteration = of_iteration, .chunk = chunk}});
  }
  absl::StatusOr<bool> Claim(uint32_t chunk, uint64_t of_iteration, uint64_t view = 0) {
    return round.Claim(config.plan().chunks()[chunk].shard,
                       {.iteration = of_iteration, .chunk = chunk, .view = view});
  }
  void AnswerChunk(uint32_t chunk) {
    const absl::StatusOr<bool> counts = Claim(chunk, iteration);
    REQUIRE(counts.ok());
    if (*counts) round.Answered(chunk, /*version=*/iteration + 1);
  }
  // Everything that the streams of the shard take, by chunk.
  std::map<uint32_t, GradientHeader> TakeAll(int shard) {
    std::map<uint32_t, GradientHeader> taken;
    while (true) {
      const auto message = round.Take(shard, /*stream=*/0, /*has_data=*/true);
      if (message.empty()) return taken;
      for (const GradientHeader& header : message) taken[header.chunk] = header;
    }
  }
  // Begins an iteration and pushes everything.
  void PushAll(uint64_t begun) {
    REQUIRE(Begin(begun).ok());
    for (const int layer : {2, 0}) Push(layer);
  }
  // Answers everything and ends the iteration.
  void AnswerAll() {
    for (const int layer : {0, 2}) Answer(layer);
    REQUIRE(round.Settled());
    round.End();
  }
  size_t ChunksOfShard(int shard) const { return config.plan().chunks_of_shard(shard).size(); }

  const PlannedConfig config;
  FakeClock clock;
  int wakes = 0;
  ExchangeRound round;
  uint64_t iteration = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_EXCHANGE_CORE_ROUND_FIXTURE_H_
