#ifndef PS_EXPERIMENTS_SIMULATE_REPORT_H_
#define PS_EXPERIMENTS_SIMULATE_REPORT_H_

#include <string>

#include "common/config/config.h"
#include "experiments/bound.h"
#include "experiments/cluster_rates.h"
#include "experiments/simulator/simulator.h"

namespace ps {

// What //experiments:simulate has played, and on what.
struct SimulateResult {
  const Config* config = nullptr;
  ClusterRates rates;
  Bound bound;
  Simulation simulation;
};

std::string SimulateText(const SimulateResult& result);

// One object, documented in docs/experiment.md.
std::string SimulateJson(const SimulateResult& result);

}  // namespace ps

#endif  // PS_EXPERIMENTS_SIMULATE_REPORT_H_
