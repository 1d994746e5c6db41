#ifndef EVENSHARD_TESTS_SIMULATION_CONTEXT_H_
#define EVENSHARD_TESTS_SIMULATION_CONTEXT_H_

#include <functional>
#include <string>

#include "common/placement/planned_config.h"
#include "tests/simulation/machines/sim_disk.h"
#include "tests/simulation/machines/sim_etcd.h"
#include "tests/simulation/machines/world.h"
#include "tests/simulation/oracle/oracle.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/watch.h"

namespace evenshard {

class PsProcess;
class Coordinator;

// What the parts of one simulation share.
struct Context {
  Context(const Scenario& scenario, const PlannedConfig* config, Plant plant)
      : scenario(scenario),
        config(*config),
        plant(plant),
        world(scenario.seed),
        disk(&world),
        oracle(config, scenario.staleness),
        watch(this) {}

  const Scenario& scenario;
  const PlannedConfig& config;
  const Plant plant;
  World world;
  SimDisk disk;
  SimEtcd etcd;
  Oracle oracle;
  Watch watch;

  // The nodes. The ps processes come first, by index, then the workers, by rank.
  int NodeOfPs(int index) const { return index; }
  int NodeOfWorker(int rank) const { return scenario.processes() + rank; }
  // launch, or etcd.
  int NodeOfCoordinator() const { return scenario.processes() + scenario.workers; }

  // The process at an address, or null if it does not run.
  std::function<PsProcess*(int index)> ps;
  std::function<Coordinator*()> coordinator;
  // A process ends by itself.
  std::function<void(int node, const std::string& why)> exit;
  // A worker has trained to the end.
  std::function<void()> has_trained;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_CONTEXT_H_
