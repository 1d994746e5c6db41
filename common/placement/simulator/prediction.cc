#include "common/placement/simulator/prediction.h"

#include <algorithm>
#include <cstdint>

#include "common/placement/simulator/simulator.h"

namespace evenshard {
namespace {

// The chunks that are pushed in a simulation, about. They take 0.06 s of a processor.
constexpr int64_t kPushes = 96 << 10;

// Under SYNC all iterations soon take the same time, unless workers fall out of step, as they do
// under SEQUENTIAL. Under ASYNC they vary, those of models with few chunks most.
SimulationOptions OptionsFor(const PlannedRun& run) {
  constexpr int64_t kLeast = 4;
  constexpr int64_t kMostWorkers = 8;
  constexpr int64_t kMostIterations = 16;
  const bool in_step = run.config.update().policy() == Update::SYNC &&
                       run.config.exchange().schedule() != ExchangeConfig::SEQUENTIAL;
  const int64_t chunks = run.plan.chunks().size();
  const int64_t workers = std::min<int64_t>(run.config.workers(), kMostWorkers);
  const int64_t iterations =
      std::clamp(kPushes / (chunks * workers), kLeast, in_step ? kLeast : kMostIterations);
  const int64_t representatives = std::clamp(kPushes / (chunks * iterations), kLeast, kMostWorkers);
  return {.iterations = static_cast<int>(iterations),
          .representatives = static_cast<int>(representatives)};
}

}  // namespace

double PredictIterationSeconds(const PlannedRun& run, const ClusterRates& rates,
                               absl::Span<const LayerTime> layer_times) {
  const Simulation simulation = Simulate(run, rates, layer_times, OptionsFor(run));
  return (simulation.seconds() - simulation.iteration_seconds.front()) /
         static_cast<double>(simulation.iteration_seconds.size() - 1);
}

}  // namespace evenshard
