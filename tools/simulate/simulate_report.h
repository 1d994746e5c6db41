#ifndef EVENSHARD_TOOLS_SIMULATE_SIMULATE_REPORT_H_
#define EVENSHARD_TOOLS_SIMULATE_SIMULATE_REPORT_H_

#include <string>

#include "common/placement/planned_config.h"
#include "common/placement/simulator/bound.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/simulator.h"

namespace evenshard {

// The simulation of //tools/simulate and the cluster that it simulated.
struct SimulateResult {
  const PlannedConfig* config = nullptr;
  ClusterRates rates;
  Bound bound;
  Simulation simulation;
};

// Formats the result as a table.
std::string SimulateText(const SimulateResult& result);

// Formats the result as a JSON object, which docs/experiment.md describes.
std::string SimulateJson(const SimulateResult& result);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_SIMULATE_SIMULATE_REPORT_H_
