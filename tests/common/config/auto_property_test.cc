// What AUTO promises of every cluster. The test prints the seed of a cluster that fails.

#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/simulator.h"
#include "tests/common/config/config_fixture.h"
#include "tests/testing/dice.h"

namespace evenshard {
namespace {

constexpr const char* kFixedSchemes[] = {
    "LAYER_BASED placement: ROUND_ROBIN",
    "LAYER_BASED placement: GREEDY",
    "LAYER_BASED placement: TENSOR_ROUND_ROBIN",
    "MEMORY_BASED",
    "STRIPED",
};

// A cluster that states all of its rates: even or uneven links, slow shards and slow workers, with
// and without computing, every schedule, policy and encoding.
std::string DrawCluster(Dice* dice) {
  // A shrunk VGG-16 has as many layers and fewer chunks.
  std::string text =
      absl::StrCat("model { ",
                   dice->Pick({"builtin: 'alexnet'", "builtin: 'resnet50'", "builtin: 'resnet152'",
                               "builtin: 'vgg16' shrink: 4", "builtin: 'mnist_mlp'"}),
                   " } training { iterations: 1 batch_size: ", dice->Int(1, 64),
                   " } partition { scheme: AUTO } compute { backend: EMULATED ");
  const int workers = dice->Int(1, 8);
  if (!dice->Once(3)) {
    absl::StrAppend(&text, "emulated { device: 'rtx_2080_ti' ");
    for (int rank = 0; dice->Once(2) && rank < workers; ++rank) {
      absl::StrAppend(&text, "worker_slowdown: ", dice->Once(2) ? dice->Between(1, 3) : 1, " ");
    }
    absl::StrAppend(&text, "}");
  }
  absl::StrAppend(&text,
                  " } update { policy: ", dice->Pick({"SYNC", "ASYNC", "SYNC", "SSP staleness: 3"}),
                  " } exchange { schedule: ", dice->Pick({"SEQUENTIAL", "BACKWARD", "FULL"}),
                  " gradient_encoding: ", dice->Pick({"FLOAT32", "FLOAT32", "BFLOAT16", "INT4"}),
                  " parameter_encoding: ", dice->Pick({"FLOAT32", "FLOAT32", "BFLOAT16"}),
                  " } workers: ", workers);
  const double gbps = dice->Scale(1, 100);
  const bool has_links = dice->Once(2);
  const bool is_uneven = dice->Once(2);
  const bool has_slow_shards = has_links && dice->Once(4);
  const int shards = dice->Int(1, 6);
  for (int shard = 0; shard < shards; ++shard) {
    absl::StrAppend(&text, " shard { address: 'ps:0'");
    if (has_links) {
      absl::StrAppend(&text, " link_gbps: ", gbps * (is_uneven ? dice->Scale(0.3, 3) : 1));
    }
    if (has_slow_shards) absl::StrAppend(&text, " server_gbps: ", gbps * dice->Scale(0.5, 5));
    absl::StrAppend(&text, " }");
  }
  if (dice->Once(3)) absl::StrAppend(&text, " worker_link_gbps: ", gbps * dice->Scale(0.3, 3));
  // Else a shard has 256 chunks. More chunks take longer to simulate.
  if (!dice->Once(4)) absl::StrAppend(&text, " limits { chunk_bytes: 655360 }");
  return text;
}

// The mean time of an iteration in a long run: workers may take tens of iterations to fall out of
// step. Every worker is simulated, and for longer than AUTO simulates its alternatives.
double MeanSeconds(const PlannedConfig& config) {
  constexpr int kIterations = 80;
  ClusterRates rates = ConfiguredRates(config.proto());
  ConvertLinks(Framing(), &rates);
  const auto layer_times = PredictedLayerTimes(config.model(), config.proto());
  REQUIRE(layer_times.ok());
  const Simulation simulation =
      Simulate(config.planned_run(), rates, *layer_times,
               {.iterations = kIterations, .representatives = config.workers()});
  const std::vector<double>& each = simulation.iteration_seconds;
  return std::accumulate(each.begin() + kIterations / 2, each.end(), 0.0) / (kIterations / 2);
}

// How much slower than the best fixed scheme AUTO may be. Where workers fall out of step, which
// scheme is the faster one depends on when one looks: of 400 drawn clusters, one was at 1.08 of it.
double Limit(const ClusterConfig& config) {
  return config.update().policy() == Update::SYNC &&
                 config.exchange().schedule() != ExchangeConfig::SEQUENTIAL
             ? 1.03
             : 1.1;
}

TEST_CASE("AUTO is not slower than the best fixed scheme") {
  const uint64_t first_seed = std::random_device()();
  double largest = 0;
  for (uint64_t seed = first_seed; seed < first_seed + 12; ++seed) {
    Dice dice(seed);
    const std::string text = DrawCluster(&dice);
    CAPTURE(seed, text);
    const PlannedConfig chosen = Valid(text);
    const double seconds = MeanSeconds(chosen);
    double best = seconds;
    for (const std::string scheme : kFixedSchemes) {
      const absl::StatusOr<PlannedConfig> fixed = PlannedConfig::Parse(
          text, "f",
          {absl::StrCat("partition={scheme: ", scheme, "}"),
           absl::StrCat("limits.chunk_bytes=", chosen.proto().limits().chunk_bytes())});
      if (!fixed.ok()) continue;  // There are more shards than layers.
      if (fixed->plan().fingerprint() == chosen.plan().fingerprint()) continue;
      best = std::min(best, MeanSeconds(*fixed));
    }
    CHECK(seconds <= Limit(chosen.proto()) * best);
    largest = std::max(largest, seconds / best);
  }
  std::cout << "seed " << first_seed << ": AUTO takes up to " << largest
            << " times as long as the best fixed scheme\n";
}

}  // namespace
}  // namespace evenshard
