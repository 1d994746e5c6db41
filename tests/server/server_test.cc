// A server in a process that reads a time of day other than the kernel's; see
// tests/testing/wall_clock.cc.

#include "server/server.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>

namespace evenshard {

namespace {

absl::StatusOr<PlannedConfig> ParseConfig(const std::string& more) {
  return PlannedConfig::Parse(R"(
    model { input { channels: 2 height: 1 width: 1 } layer { name: "fc" linear { out_features: 2 } } }
    partition { scheme: MEMORY_BASED }
    shard { address: "127.0.0.1:0" }
    workers: 1
    update { policy: SYNC }
    optimizer { kind: SGD learning_rate: 1 }
    training { iterations: 1 }
    compute { backend: EMULATED }
    limits { exchange_seconds: 0.5 }
  )" + more,
                              "test.textproto", {});
}

}  // namespace

TEST_CASE("a spare cannot be started without views, which give it a role") {
  const absl::StatusOr<PlannedConfig> config =
      ParseConfig("recovery { spare { address: '127.0.0.1:0' } }");
  INFO(config.status());
  REQUIRE(config.ok());
  const RealClock clock;
  const absl::Status status =
      Server::Start({.config = &*config, .shard = 1, .clock = &clock}).status();
  CHECK(status == absl::OutOfRangeError("there is no shard 1: the config has 1 shards, 0 to 0"));
}

TEST_CASE("a server watches for waits while somebody sets the clock") {
  const absl::StatusOr<PlannedConfig> config = ParseConfig("");
  INFO(config.status());
  REQUIRE(config.ok());
  const RealClock clock;
  // The watching thread calls release_memory whenever it has looked and nothing was exchanged.
  std::promise<void> looked;
  std::atomic<bool> first{true};
  const auto server =
      Server::Start({.config = &*config, .shard = 0, .clock = &clock, .release_memory = [&] {
                       if (first.exchange(false)) looked.set_value();
                     }});
  INFO(server.status());
  REQUIRE(server.ok());
  CHECK(looked.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
}

}  // namespace evenshard
