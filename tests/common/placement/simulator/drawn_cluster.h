#ifndef EVENSHARD_TESTS_COMMON_PLACEMENT_SIMULATOR_DRAWN_CLUSTER_H_
#define EVENSHARD_TESTS_COMMON_PLACEMENT_SIMULATOR_DRAWN_CLUSTER_H_

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/planned_config.h"
#include "common/placement/simulator/cluster_rates.h"
#include "tests/testing/dice.h"

namespace evenshard {

// A cluster drawn at random: a small model, every schedule, encoding and, but for QUORUM, policy,
// with and without clipping by norm, shards on hosts of their own or on the workers', even or
// uneven links, slow workers and slow shards, with and without computing.
struct DrawnCluster {
  struct Options {
    std::string schedule;  // drawn if empty
    std::string policy;    // drawn if empty
    bool is_ring = false;  // has no shards, and the policy SYNC
    int max_workers = 12;
    int min_chunks = 1;  // about
    int max_chunks = 100;
    bool is_even = false;      // all links and workers are equal, and nothing is computed
    int distinct_workers = 0;  // so many kinds of workers at most; 0: every worker may differ
  };

  DrawnCluster(uint64_t seed, const Options& options);

  std::string text;
  PlannedConfig config;
  ClusterRates rates;
  std::vector<LayerTime> layer_times;

 private:
  DrawnCluster(Dice dice, const Options& options);
  static std::string DrawText(Dice* dice, const Options& options);
  // The parts of the text that are about shards, and about a ring.
  static std::string DrawShards(Dice* dice, const Options& options, int layers, int64_t bytes,
                                int workers);
  static std::string DrawRing(Dice* dice, int64_t bytes, int workers);
  static PlannedConfig Parse(const std::string& text) {
    absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(text, "drawn");
    INFO(text << "\n" << config.status().message());
    REQUIRE(config.ok());
    return *std::move(config);
  }
};

inline DrawnCluster::DrawnCluster(uint64_t seed, const Options& options)
    : DrawnCluster(Dice(seed), options) {}

inline DrawnCluster::DrawnCluster(Dice dice, const Options& options)
    : text(DrawText(&dice, options)), config(Parse(text)) {
  constexpr double kRate = 1e6;
  const int workers = config.workers();
  rates = {.worker_link = std::vector<double>(workers, kRate),
           .shard_link = std::vector<double>(config.shards(), kRate),
           .shard_processing =
               std::vector<double>(config.shards(), std::numeric_limits<double>::infinity()),
           .worker_slowdown = std::vector<double>(workers, 1)};
  layer_times.resize(config.model().layers().size());
  if (options.is_even) return;
  if (dice.Once(2)) {
    for (double& rate : rates.worker_link) rate *= dice.Scale(0.3, 3);
  }
  if (dice.Once(2)) {
    for (double& rate : rates.shard_link) rate *= dice.Scale(0.3, 3);
  }
  if (config.proto().colocated()) {
    std::copy_n(rates.worker_link.begin(), config.shards(), rates.shard_link.begin());
  }
  if (dice.Once(3)) {
    for (double& rate : rates.shard_processing) rate = kRate * dice.Scale(0.5, 5);
  }
  if (dice.Once(2)) {
    for (double& slowdown : rates.worker_slowdown) {
      if (dice.Once(3)) slowdown = dice.Between(1, 4);
    }
  }
  for (int rank = options.distinct_workers; options.distinct_workers > 0 && rank < workers;
       ++rank) {
    const int like = dice.Int(0, options.distinct_workers - 1);
    if (!config.proto().colocated()) rates.worker_link[rank] = rates.worker_link[like];
    rates.worker_slowdown[rank] = rates.worker_slowdown[like];
  }
  if (dice.Once(3)) return;
  // The whole computing of a worker, in parts of the time in which the model passes a link.
  const double compute_seconds = 4.0 * config.model().element_count() / kRate * dice.Scale(0.05, 5);
  for (LayerTime& time : layer_times) {
    const double seconds = dice.Between(0, 2) * compute_seconds / layer_times.size();
    time.forward_seconds = seconds / 3;
    time.backward_seconds = seconds * 2 / 3;
  }
}

inline std::string DrawnCluster::DrawText(Dice* dice, const Options& options) {
  std::string text = "model { input { channels: 40 height: 1 width: 1 }";
  const int layers = dice->Int(1, 6);
  int64_t bytes = 0;
  int inputs = 40;
  for (int i = 0; i < layers; ++i) {
    const int outputs = dice->Scale(100, 600);
    absl::StrAppend(&text, " layer { name: 'l", i, "' linear { out_features: ", outputs, " } }");
    if (dice->Once(3)) absl::StrAppend(&text, " layer { relu {} }");
    bytes += 4 * (inputs + 1) * outputs;
    inputs = outputs;
  }
  const int workers = dice->Int(options.is_ring ? 2 : 1, options.max_workers);
  absl::StrAppend(&text,
                  " } training { iterations: 1 } compute { backend: EMULATED } workers: ", workers,
                  options.is_ring ? DrawRing(dice, bytes, workers)
                                  : DrawShards(dice, options, layers, bytes, workers));
  absl::StrAppend(
      &text, " exchange { schedule: ",
      options.schedule.empty() ? dice->Pick({"SEQUENTIAL", "BACKWARD", "FULL"}) : options.schedule,
      " gradient_encoding: ",
      dice->Pick({"FLOAT32", "FLOAT32", "BFLOAT16", options.is_ring ? "FLOAT16" : "INT4"}),
      " parameter_encoding: ", dice->Pick({"FLOAT32", "FLOAT32", "BFLOAT16"}), " }");
  return text;
}

inline std::string DrawnCluster::DrawShards(Dice* dice, const Options& options, int layers,
                                            int64_t bytes, int workers) {
  const std::string partition = dice->Pick(
      {"scheme: MEMORY_BASED", "scheme: MEMORY_BASED", "scheme: LAYER_BASED placement: GREEDY"});
  const int most_shards = partition == "scheme: MEMORY_BASED" ? 5 : std::min(layers, 5);
  const int shards = dice->Int(1, most_shards);
  const int64_t chunk_bytes =
      (bytes / dice->Int(std::max(shards, options.min_chunks), options.max_chunks) / 64 + 1) * 64;
  const std::string policy =
      options.policy.empty() ? dice->Pick({"SYNC", "ASYNC"}) : options.policy;
  const bool clips = policy == "SYNC" && !options.is_even && dice->Once(3);
  std::string text = absl::StrCat(
      " update { policy: ", policy, clips ? " clip_global_norm: 1" : "", " } partition { ",
      partition, " } limits { chunk_bytes: ", chunk_bytes, " connections: ", dice->Int(1, 4), " }");
  if (shards <= workers && dice->Once(3)) absl::StrAppend(&text, " colocated: true");
  for (int i = 0; i < shards; ++i) absl::StrAppend(&text, " shard { address: 'ps:0' }");
  return text;
}

inline std::string DrawnCluster::DrawRing(Dice* dice, int64_t bytes, int workers) {
  const int64_t chunk_bytes = (bytes / dice->Int(1, 100) / 64 + 1) * 64;
  std::string text = absl::StrCat(
      " topology: RING update { policy: SYNC } limits { chunk_bytes: ", chunk_bytes,
      " connections: ", dice->Int(1, 4), " } ring { bucket_bytes: ", chunk_bytes * dice->Int(1, 20),
      " first_bucket_bytes: ", chunk_bytes * dice->Int(1, 3));
  for (int i = 0; i < workers; ++i) absl::StrAppend(&text, " address: 'worker:0'");
  return text + " }";
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_PLACEMENT_SIMULATOR_DRAWN_CLUSTER_H_
