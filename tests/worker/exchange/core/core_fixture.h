#ifndef EVENSHARD_TESTS_WORKER_EXCHANGE_CORE_CORE_FIXTURE_H_
#define EVENSHARD_TESTS_WORKER_EXCHANGE_CORE_CORE_FIXTURE_H_

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/placement/planned_config.h"
#include "tests/testing/fake_clock.h"
#include "worker/exchange/core/exchange_core.h"

namespace evenshard {

inline constexpr uint64_t kIncarnation = 77;

// fc1 has the chunks 0 to 4 (weight) and 5, on both shards; fc2, layer 2, has 6 and 7.
inline constexpr char kCoreConfig[] = R"(
  model {
    input { channels: 16 height: 1 width: 1 }
    layer { name: "fc1" linear { out_features: 16 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 2 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "a:1" }
  shard { address: "b:2" }
  workers: 3
  update { policy: SYNC }
  training { iterations: 1 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 256 connections: 1 startup_seconds: 8 exchange_seconds: 20
           reconnect_seconds: 3 }
)";

inline constexpr int kAllTensors[] = {0, 1, 2, 3};

inline PlannedConfig MakeCoreConfig(const std::vector<std::string>& overrides) {
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(kCoreConfig, "test", overrides);
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

// Notes what the core asks for.
class FakeTransport final : public ExchangeTransport {
 public:
  void Connect(const Attempt& attempt) override {
    attempts.push_back(attempt);
    latest[attempt.slot] = attempt;
  }
  void Disconnect(int slot) override { latest[slot].reset(); }
  void Wake(int slot) override { wakes.push_back(slot); }

  std::vector<Attempt> attempts;
  std::optional<Attempt> latest[2];  // by slot: the attempt, or nothing if it is disconnected
  std::vector<int> wakes;
};

// A core of rank 1 whose connections the test makes and breaks.
struct CoreFixture {
  explicit CoreFixture(const std::vector<std::string>& overrides = {}, bool has_views = false)
      : CoreFixture(MakeCoreConfig(overrides), has_views) {}
  explicit CoreFixture(PlannedConfig with, bool has_views = false)
      : config(std::move(with)),
        core({.config = &config,
              .rank = 1,
              .incarnation = kIncarnation,
              .clock = &clock,
              .transport = &transport,
              .addresses = {"a:1", "b:2"},
              .has_views = has_views}) {}

  // Lets the slot's latest attempt succeed.
  void Connect(int slot, uint64_t start_iteration = 0, uint64_t history = 0) {
    REQUIRE(transport.latest[slot].has_value());
    JoinResponse response;
    response.set_start_iteration(start_iteration);
    response.set_history(history);
    core.Connected(slot, transport.latest[slot]->number, response);
  }
  void Break(int slot, const absl::Status& status = absl::UnavailableError("Socket closed")) {
    REQUIRE(transport.latest[slot].has_value());
    core.Broken(slot, transport.latest[slot]->number, status);
  }
  void StartAndConnect() {
    core.Start();
    Connect(0);
    Connect(1);
    REQUIRE(core.ready());
  }
  // How long the latest attempt waits.
  absl::Duration Delay(int slot) const { return transport.latest[slot]->not_before - clock.Now(); }
  void Advance(absl::Duration duration) {
    const absl::Time end = clock.Now() + duration;
    while (clock.Now() < end) {
      clock.Advance(std::min(core.tick_period(), end - clock.Now()));
      core.Tick();
    }
  }
  std::vector<GradientHeader> TakeAll(int slot) {
    std::vector<GradientHeader> taken;
    while (true) {
      const std::vector<GradientHeader> message = core.round().Take(slot, 0, /*has_data=*/true);
      if (message.empty()) return taken;
      taken.insert(taken.end(), message.begin(), message.end());
      core.round().Sent(message);
    }
  }
  void Answer(const GradientHeader& push, uint64_t view = 0) {
    const int slot = config.plan().chunks()[push.chunk].shard;
    const absl::StatusOr<bool> counts =
        core.round().Claim(slot, {.iteration = push.iteration, .chunk = push.chunk, .view = view});
    REQUIRE(counts.ok());
    if (*counts) core.round().Answered(push.chunk, push.iteration + 1);
  }
  void PushAll(uint64_t iteration) {
    REQUIRE(core.round().Begin(iteration).ok());
    REQUIRE(core.round().Push(kAllTensors).ok());
  }
  size_t ChunksOf(int slot) const { return config.plan().chunks_of_shard(slot).size(); }

  const PlannedConfig config;
  FakeClock clock;
  FakeTransport transport;
  ExchangeCore core;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_EXCHANGE_CORE_CORE_FIXTURE_H_
