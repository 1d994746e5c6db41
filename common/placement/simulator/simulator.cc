#include "common/placement/simulator/simulator.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/config/config_contract.h"
#include "common/placement/simulator/ring_cluster.h"
#include "common/placement/simulator/shard_cluster.h"

namespace evenshard {
namespace {

// The chunks that are pushed in a simulation, about. They take 0.06 s of a processor.
constexpr int64_t kPushes = 96 << 10;

// Whether all iterations soon take the same time. Otherwise, under SEQUENTIAL and where workers
// need not wait for all others, the workers begin abreast and fall out of step, which may take tens
// of iterations.
bool StaysInStep(const PlannedRun& run) {
  return run.ring != nullptr || (run.config.update().policy() == Update::SYNC &&
                                 run.config.exchange().schedule() != ExchangeConfig::SEQUENTIAL);
}

SimulationOptions OptionsFor(const PlannedRun& run) {
  constexpr int64_t kLeast = 4;
  constexpr int64_t kMostWorkers = 8;
  constexpr int64_t kMostIterations = 64;
  if (run.ring != nullptr) return {.iterations = kLeast};
  const int64_t chunks = run.plan.chunks().size();
  const int64_t hosts = run.config.colocated() ? run.plan.shards() : 0;
  const int64_t workers = std::min<int64_t>(run.config.workers(), std::max(hosts, kMostWorkers));
  const int64_t iterations =
      std::clamp(kPushes / (chunks * workers), kLeast, StaysInStep(run) ? kLeast : kMostIterations);
  const int64_t representatives = std::clamp(kPushes / (chunks * iterations), kLeast, kMostWorkers);
  return {.iterations = static_cast<int>(iterations),
          .representatives = static_cast<int>(representatives)};
}

}  // namespace

Simulation Simulate(const PlannedRun& run, const ClusterRates& rates,
                    absl::Span<const LayerTime> layer_times, const SimulationOptions& options) {
  return run.ring != nullptr ? SimulateRing(run, rates, layer_times, options)
                             : SimulateShards(run, rates, layer_times, options);
}

Prediction Predict(const PlannedRun& run, const ClusterRates& rates,
                   absl::Span<const LayerTime> layer_times) {
  const Simulation simulation = Simulate(run, rates, layer_times, OptionsFor(run));
  const std::vector<double>& each = simulation.iteration_seconds;
  const int first = StaysInStep(run) ? 1 : each.size() / 2;
  const double sum = std::accumulate(each.begin() + first, each.end(), 0.0);
  return {.iteration_seconds = sum / static_cast<double>(each.size() - first),
          .batches_per_second = simulation.batches_per_second(first - 1)};
}

}  // namespace evenshard
