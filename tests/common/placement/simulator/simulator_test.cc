#include "common/placement/simulator/simulator.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "common/placement/simulator/bound.h"
#include "tests/common/placement/simulator/cluster_fixture.h"

namespace evenshard {
namespace {

constexpr double kRate = 1e6;
constexpr double kModelBytes = 430000 * 4;
constexpr double kChunkBytes = 4096;  // of the fixture
constexpr char kAuto[] = "scheme: AUTO";

Simulation Exchange(const PlannedConfig& config, int iterations = 4) {
  return Simulate(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0, 0),
                  {.iterations = iterations});
}

double BoundSeconds(const PlannedConfig& config, const ClusterRates& rates) {
  return BoundOf(config.planned_run(), rates, EqualTimes(config, 0, 0)).iteration_seconds();
}

TEST_CASE("under FULL many workers and shards with equal links reach the bound") {
  for (const char* partition : {kMemoryBased, kGreedy}) {
    for (const int workers : {1, 2, 3, 8, 32}) {
      for (const int shards : {1, 2, 3, 16}) {
        if (partition == kGreedy && shards > 3) continue;
        CAPTURE(partition, workers, shards);
        // Smaller chunks: before the first one is answered, the way back is idle.
        const PlannedConfig config =
            ClusterConfigOf(workers, shards, partition, "FULL", {"limits.chunk_bytes=512"});
        const double seconds = Exchange(config).steady_seconds();
        const double bound = BoundSeconds(config, EqualRates(config, kRate));
        CHECK(seconds >= bound * (1 - 1e-9));
        CHECK(seconds <= bound * 1.05);
      }
    }
  }
}

TEST_CASE("under SEQUENTIAL an exchange takes twice as long as one direction") {
  for (const char* partition : {kMemoryBased, kGreedy}) {
    for (const int workers : {1, 2, 8}) {
      for (const int shards : {1, 3}) {
        CAPTURE(partition, workers, shards);
        const PlannedConfig config =
            ClusterConfigOf(workers, shards, partition, "SEQUENTIAL", {"limits.chunk_bytes=512"});
        const Simulation simulation = Exchange(config, 2);
        const Bound bound =
            BoundOf(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0, 0));
        CHECK(bound.in_step_seconds == Approx(2 * bound.push_seconds));
        CHECK(simulation.iteration_seconds.front() == Approx(bound.in_step_seconds).epsilon(0.03));
      }
    }
  }
}

TEST_CASE("with clipping by norm nothing comes back before everything is there, at every shard") {
  for (const std::string schedule : {"FULL", "BACKWARD", "SEQUENTIAL"}) {
    for (const int shards : {1, 3}) {
      CAPTURE(schedule, shards);
      const PlannedConfig config =
          ClusterConfigOf(2, shards, kMemoryBased, schedule, {"update.clip_global_norm=1"});
      ClusterRates rates = EqualRates(config, kRate);
      rates.shard_link[0] = kRate / 4;  // the others wait for this one
      const double first = 2 * kModelBytes / shards / (kRate / 4);
      const Simulation simulation =
          Simulate(config.planned_run(), rates, EqualTimes(config, 0, 0), {.iterations = 4});
      for (const double seconds : simulation.iteration_seconds) {
        CHECK(seconds == Approx(2 * first).epsilon(0.01));
      }
    }
  }
  // Without it the two directions overlap.
  const PlannedConfig plain = ClusterConfigOf(2, 1, kMemoryBased, "FULL");
  CHECK(Exchange(plain).steady_seconds() < 1.1 * 2 * kModelBytes / kRate);
}

TEST_CASE("running statistics do not wait for the norm") {
  const std::vector<std::string> overrides = {
      "model={ input { channels: 40 height: 1 width: 1 } layer { name: 'n' batch_norm {} } layer { "
      "name: 'f' linear { out_features: 2 } } }",
      "update.clip_global_norm=1", "limits.chunk_bytes=64"};
  const PlannedConfig config = ClusterConfigOf(2, 2, kMemoryBased, "FULL", overrides);
  CHECK(Exchange(config).seconds() > 0);
}

TEST_CASE("one worker and one shard take the time of their link") {
  const PlannedConfig sequential = ClusterConfigOf(1, 1, kMemoryBased, "SEQUENTIAL");
  for (const double seconds : Exchange(sequential).iteration_seconds) {
    CHECK(seconds == Approx(2 * kModelBytes / kRate));
  }
  // The answer to the last chunk comes after everything is pushed.
  const PlannedConfig full = ClusterConfigOf(1, 1, kMemoryBased, "FULL");
  for (const double seconds : Exchange(full).iteration_seconds) {
    CHECK(seconds > kModelBytes / kRate);
    CHECK(seconds <= (kModelBytes + kChunkBytes) / kRate * (1 + 1e-9));
  }
}

TEST_CASE("with slow devices an iteration takes their time plus what cannot overlap") {
  const auto seconds = [](const char* schedule) {
    const PlannedConfig config = ClusterConfigOf(4, 2, kMemoryBased, schedule);
    // 3 layers; the exchange of the whole model takes 3.44 s each way.
    return Simulate(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 10, 20),
                    {.iterations = 4})
        .steady_seconds();
  };
  const double exchange = 2 * kModelBytes / kRate;
  const double front = 4 * 80000 / kRate;  // of four workers, on one shard
  CHECK(seconds("FULL") >= 90);
  CHECK(seconds("FULL") <= 90 + 2 * front);
  CHECK(seconds("BACKWARD") >= 90 + front);
  CHECK(seconds("BACKWARD") <= 90 + 2 * front + 8 * kChunkBytes / kRate);
  CHECK(seconds("SEQUENTIAL") == Approx(90 + 2 * exchange).epsilon(0.01));
}

TEST_CASE("a worker goes on if all is back before it has computed layers without parameters") {
  for (const std::string schedule : {"SEQUENTIAL", "BACKWARD", "FULL"}) {
    for (const bool is_colocated : {true, false}) {
      CAPTURE(schedule, is_colocated);
      absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
          absl::StrCat("model { input { channels: 3 height: 64 width: 64 }"
                       "  layer { max_pool { kernel: 4 } }"
                       "  layer { name: 'fc' linear { out_features: 10 } } }"
                       "update { policy: SYNC } training { iterations: 1 } workers: 1"
                       " partition { scheme: MEMORY_BASED } shard { address: 'ps:0' }"
                       " compute { backend: EMULATED } exchange { schedule: ",
                       schedule, " } colocated: ", is_colocated ? "true" : "false"),
          "f");
      INFO(config.status().message());
      REQUIRE(config.ok());
      constexpr double kForward = 1;
      constexpr double kBackward = 2;
      const Simulation simulation =
          Simulate(config->planned_run(), EqualRates(*config, 1e9),
                   EqualTimes(*config, kForward, kBackward), {.iterations = 4});
      REQUIRE(simulation.iteration_seconds.size() == 4);
      for (const double seconds : simulation.iteration_seconds) CHECK(seconds > 0);
      CHECK(simulation.steady_seconds() == Approx(2 * (kForward + kBackward)).epsilon(0.01));
    }
  }
}

TEST_CASE("a slow worker delays all workers under SYNC, and only itself under ASYNC") {
  for (const bool sync : {true, false}) {
    CAPTURE(sync);
    const PlannedConfig config = ClusterConfigOf(
        3, 1, kMemoryBased, "FULL", {sync ? "update.policy=SYNC" : "update.policy=ASYNC"});
    ClusterRates rates = EqualRates(config, 1000 * kRate);
    rates.worker_slowdown[1] = 4;
    const Simulation simulation =
        Simulate(config.planned_run(), rates, EqualTimes(config, 1, 2), {.iterations = 4});
    CHECK(simulation.steady_seconds() == Approx(4 * 9).epsilon(0.01));
    const double ratio =
        simulation.worker_links[0].bytes_out / simulation.worker_links[1].bytes_out;
    if (sync) {
      CHECK(ratio == 1);
    } else {
      CHECK(ratio == Approx(4).epsilon(0.1));
    }
  }
}

TEST_CASE("under SSP a fast worker gets ahead of a slow one as far as the bound") {
  constexpr int kIterations = 10;
  const auto ahead = [](int staleness) {
    const PlannedConfig config =
        ClusterConfigOf(3, 1, kMemoryBased, "FULL",
                        {absl::StrCat("update={policy: SSP staleness: ", staleness, "}")});
    ClusterRates rates = EqualRates(config, 1000 * kRate);
    rates.worker_slowdown[1] = 4;
    const Simulation simulation = Simulate(config.planned_run(), rates, EqualTimes(config, 1, 2),
                                           {.iterations = kIterations});
    // All iterations of the slow worker are the slowest ones.
    CHECK(simulation.steady_seconds() == Approx(4 * 9).epsilon(0.01));
    return (simulation.worker_links[0].bytes_out - simulation.worker_links[1].bytes_out) /
           kModelBytes;
  };
  CHECK(ahead(1) == 1);
  CHECK(ahead(5) == 5);
  CHECK(ahead(1000) == Approx(3 * kIterations).epsilon(0.1));
}

TEST_CASE("under QUORUM an update waits for enough workers and a time of grace") {
  const auto simulate = [](const std::string& update, double slowdown, int iterations) {
    const PlannedConfig config = ClusterConfigOf(4, 2, kMemoryBased, "FULL", {"update=" + update});
    ClusterRates rates = EqualRates(config, 1e6 * kRate);
    rates.worker_slowdown[1] = slowdown;
    return Simulate(config.planned_run(), rates, EqualTimes(config, 1, 2),
                    {.iterations = iterations});
  };
  const std::string three = "{policy: QUORUM quorum: 3 grace: 0.1}";
  // Three workers take 9 s, and from one update to the next 0.9 s more. The fourth one is always
  // too late.
  const Simulation slow = simulate(three, 4, 20);
  CHECK(slow.iteration_seconds.back() == Approx(9.9).epsilon(1e-3));
  CHECK(slow.batches_per_second(1) == Approx(3 / 9.9).epsilon(1e-3));
  // It is only a little slower, and within the grace.
  const Simulation near = simulate(three, 1.05, 20);
  CHECK(near.iteration_seconds.back() == Approx(9 * 1.05).epsilon(1e-3));
  CHECK(near.batches_per_second(1) == Approx(4 / (9 * 1.05)).epsilon(1e-3));
  // Only the first update, before which there is no time to go by, is without grace.
  const Simulation even = simulate(three, 1, 5);
  CHECK(even.seconds() == Approx(5 * 9).epsilon(1e-3));
  CHECK(even.batches == std::vector<double>{3, 7, 11, 15, 19});
}

TEST_CASE("under QUORUM a worker that was dropped takes part again from where the run is") {
  // Worker 1 takes 2.5 times as long as an update. Its gradient is always of an update that is
  // over.
  const PlannedConfig config =
      ClusterConfigOf(3, 1, kMemoryBased, "FULL", {"update={policy: QUORUM quorum: 2 grace: 0}"});
  ClusterRates rates = EqualRates(config, 1e6 * kRate);
  rates.worker_slowdown[1] = 2.5;
  const Simulation simulation =
      Simulate(config.planned_run(), rates, EqualTimes(config, 1, 2), {.iterations = 10});
  CHECK(simulation.seconds() == Approx(90).epsilon(1e-3));
  CHECK(simulation.batches.back() == 20);
  // It has pushed in vain at 22.5, 45 and 67.5 s, and at the end, when the last update was made.
  CHECK(simulation.worker_links[1].bytes_out >= 3 * kModelBytes);
  CHECK(simulation.worker_links[0].bytes_out == 10 * kModelBytes);
}

TEST_CASE("a prediction has the batches of all workers that count in a second") {
  const auto batches = [](const std::string& update, const std::string& local = "") {
    std::vector<std::string> overrides = {"update=" + update};
    if (!local.empty()) overrides.push_back("local=" + local);
    const PlannedConfig config = ClusterConfigOf(4, 2, kMemoryBased, "FULL", overrides);
    ClusterRates rates = EqualRates(config, 1e6 * kRate);
    rates.worker_slowdown[1] = 3;
    return Predict(config.planned_run(), rates, EqualTimes(config, 1, 2)).batches_per_second;
  };
  CHECK(batches("{policy: SYNC}") == Approx(4 / 27.0).epsilon(0.01));
  CHECK(batches("{policy: ASYNC}") == Approx(3 / 9.0 + 1 / 27.0).epsilon(0.03));
  CHECK(batches("{policy: SSP staleness: 4}") == Approx(4 / 27.0).epsilon(0.03));
  CHECK(batches("{policy: QUORUM quorum: 3 grace: 0}") == Approx(3 / 9.0).epsilon(0.03));
  CHECK(batches("{policy: SYNC}", "{steps: 10 optimizer {kind: SGD}}") ==
        Approx(4 / 27.0).epsilon(0.01));
  // Each ends its round after 45 s, with 5 steps or, if it is slow, with 45 / 27 of one.
  CHECK(batches("{policy: SYNC}", "{steps: 10 seconds: 45 optimizer {kind: SGD}}") ==
        Approx((3 * 5 + 45 / 27.0) / 45).epsilon(0.01));
}

TEST_CASE("the slowest link of a worker or a shard determines the time") {
  const PlannedConfig config =
      ClusterConfigOf(4, 4, kMemoryBased, "FULL", {"limits.chunk_bytes=512"});
  ClusterRates rates = EqualRates(config, 10 * kRate);
  rates.worker_link[2] = kRate;
  const auto seconds = [&] {
    return Simulate(config.planned_run(), rates, EqualTimes(config, 0, 0), {.iterations = 4})
        .steady_seconds();
  };
  CHECK(seconds() == Approx(kModelBytes / kRate).epsilon(0.03));
  rates = EqualRates(config, 10 * kRate);
  rates.shard_link[3] = kRate;
  CHECK(seconds() == Approx(kModelBytes / kRate).epsilon(0.03));
  rates = EqualRates(config, 10 * kRate);
  rates.shard_processing[0] = kRate;
  CHECK(seconds() == Approx(kModelBytes / kRate).epsilon(0.03));
}

TEST_CASE("AUTO is as fast as MEMORY_BASED on even links and faster with a slow one") {
  const auto seconds = [](const char* partition, double slow_gbps) {
    const PlannedConfig config =
        ClusterConfigOf(4, 3, partition, "FULL",
                        {"limits.chunk_bytes=512", "shard[0].link_gbps=10",
                         absl::StrCat("shard[1].link_gbps=", slow_gbps), "shard[2].link_gbps=10"});
    ClusterRates rates = EqualRates(config, 10 * kRate);
    rates.shard_link[1] = slow_gbps * kRate;
    return Simulate(config.planned_run(), rates, EqualTimes(config, 0, 0), {.iterations = 4})
        .steady_seconds();
  };
  CHECK(seconds(kAuto, 10) == Approx(seconds(kMemoryBased, 10)).epsilon(0.01));
  CHECK(seconds(kMemoryBased, 2) == Approx(4 * kModelBytes / 3 / (2 * kRate)).epsilon(0.05));
  CHECK(seconds(kAuto, 2) == Approx(4 * kModelBytes / (22 * kRate)).epsilon(0.05));
}

TEST_CASE("under every schedule and policy each byte of a plan passes once in each direction") {
  for (const char* partition : {kMemoryBased, kGreedy}) {
    for (const char* schedule : {"SEQUENTIAL", "BACKWARD", "FULL"}) {
      for (const char* policy : {"SYNC", "ASYNC"}) {
        CAPTURE(partition, schedule, policy);
        const PlannedConfig config = ClusterConfigOf(
            5, 3, partition, schedule,
            {absl::StrCat("update.policy=", policy), "exchange.parameter_encoding=BFLOAT16"});
        ClusterRates rates = EqualRates(config, kRate);
        rates.worker_slowdown[0] = 2;
        rates.worker_link[4] = kRate / 2;
        const Simulation simulation =
            Simulate(config.planned_run(), rates, EqualTimes(config, 0.1, 0.2), {.iterations = 3});
        REQUIRE(simulation.iteration_seconds.size() == 3);
        double shards_in = 0;
        double workers_out = 0;
        for (int shard = 0; shard < 3; ++shard) {
          const double pushed = 3.0 * 5 * 4 * config.plan().shard_parameters(shard);
          CHECK(simulation.shard_payload[shard].bytes_in == pushed);
          CHECK(simulation.shard_payload[shard].bytes_out == pushed / 2);
          CHECK(simulation.shard_links[shard].bytes_in >= pushed);
          shards_in += simulation.shard_links[shard].bytes_in;
        }
        for (const LinkUse& link : simulation.worker_links) workers_out += link.bytes_out;
        if (std::string(policy) == "SYNC") {
          CHECK(shards_in == 3.0 * 5 * kModelBytes);
          CHECK(workers_out == shards_in);
        } else {
          CHECK(workers_out >= shards_in);
        }
      }
    }
  }
}

TEST_CASE("no link passes more than its rate allows") {
  for (const char* policy : {"SYNC", "ASYNC"}) {
    const PlannedConfig config =
        ClusterConfigOf(7, 3, kGreedy, "FULL", {absl::StrCat("update.policy=", policy)});
    ClusterRates rates = EqualRates(config, kRate);
    rates.worker_link[3] = kRate / 5;
    rates.shard_link[0] = kRate / 3;
    const Simulation simulation =
        Simulate(config.planned_run(), rates, EqualTimes(config, 0.05, 0.1), {.iterations = 3});
    for (int shard = 0; shard < 3; ++shard) {
      const double most = rates.shard_link[shard] * simulation.seconds() * (1 + 1e-9);
      CHECK(simulation.shard_links[shard].bytes_in <= most);
      CHECK(simulation.shard_links[shard].bytes_out <= most + kChunkBytes);
    }
    for (int rank = 0; rank < 7; ++rank) {
      const double most = rates.worker_link[rank] * simulation.seconds() * (1 + 1e-9);
      CHECK(simulation.worker_links[rank].bytes_in <= most);
      CHECK(simulation.worker_links[rank].bytes_out <= most + kChunkBytes);
    }
  }
}

TEST_CASE("the timeline shows when each link of a shard is busy in the last iteration") {
  constexpr int kBins = 40;
  const PlannedConfig config = ClusterConfigOf(4, 2, kMemoryBased, "SEQUENTIAL");
  const Simulation simulation =
      Simulate(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 1, 2),
               {.iterations = 3, .timeline_bins = kBins});
  const Timeline& timeline = simulation.timeline;
  const double last = simulation.iteration_seconds.back();
  CHECK(timeline.begin_seconds == Approx(simulation.seconds() - last));
  CHECK(timeline.bin_seconds * kBins == Approx(last));
  REQUIRE(timeline.shards.size() == 2);
  for (int shard = 0; shard < 2; ++shard) {
    const auto& [in, out] = timeline.shards[shard];
    REQUIRE(in.size() == kBins);
    REQUIRE(out.size() == kBins);
    // 9 s of computing, then 3.44 s in, then as long out.
    const double busy = 4 * 4 * config.plan().shard_parameters(shard) / kRate;
    CHECK(std::accumulate(in.begin(), in.end(), 0.0) * timeline.bin_seconds == Approx(busy));
    CHECK(std::accumulate(out.begin(), out.end(), 0.0) * timeline.bin_seconds == Approx(busy));
    const auto bin = [&](double seconds) {
      return static_cast<int>(seconds / timeline.bin_seconds);
    };
    CHECK(in[bin(4)] + out[bin(4)] == 0);
    CHECK(in[bin(10.5)] == Approx(1));
    CHECK(out[bin(10.5)] == 0);
    CHECK(in[bin(14.5)] == 0);
    CHECK(out[bin(14.5)] == Approx(1));
  }
  CHECK(Exchange(config).timeline.shards.empty());
}

TEST_CASE("equal arguments give equal simulations") {
  for (const char* policy : {"SYNC", "ASYNC"}) {
    const PlannedConfig config =
        ClusterConfigOf(9, 2, kMemoryBased, "FULL", {absl::StrCat("update.policy=", policy)});
    ClusterRates rates = EqualRates(config, kRate);
    rates.worker_link[3] = kRate / 3;
    const auto run = [&] {
      return Simulate(config.planned_run(), rates, EqualTimes(config, 0.01, 0.03),
                      {.iterations = 4});
    };
    const Simulation once = run();
    const Simulation again = run();
    CHECK(once.iteration_seconds == again.iteration_seconds);
    for (int rank = 0; rank < 9; ++rank) {
      CHECK(once.worker_links[rank].bytes_in == again.worker_links[rank].bytes_in);
      CHECK(once.worker_links[rank].bytes_out == again.worker_links[rank].bytes_out);
    }
  }
}

TEST_CASE("the steady time leaves the first iteration out") {
  Simulation simulation;
  simulation.iteration_seconds = {5};
  CHECK(simulation.steady_seconds() == 5);
  CHECK_FALSE(simulation.is_steady());
  simulation.iteration_seconds = {5, 2, 1};
  CHECK(simulation.steady_seconds() == 1.5);
  CHECK_FALSE(simulation.is_steady());
  simulation.iteration_seconds = {5, 1, 2, 2.01};
  CHECK(simulation.steady_seconds() == 2);
  CHECK(simulation.is_steady());
  CHECK(simulation.seconds() == Approx(10.01));
}

}  // namespace
}  // namespace evenshard
