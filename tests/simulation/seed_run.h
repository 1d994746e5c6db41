#ifndef EVENSHARD_TESTS_SIMULATION_SEED_RUN_H_
#define EVENSHARD_TESTS_SIMULATION_SEED_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/scenario.h"
#include "tests/simulation/simulation.h"

namespace evenshard {

// What was run, and what came of it.
struct SeedRun {
  Scenario scenario;
  std::vector<Fault> faults = {};
  Outcome outcome = {};

  std::string ToString() const;  // the cluster, and what befalls it
};

// Whether a planted fault can show at all in a cluster, and with what befalls it.
bool MayShow(Plant plant, const Scenario& scenario);

// Runs the cluster of a seed: first without faults, and then with those that the seed draws. With a
// planted fault, what is also wrong without it is no violation.
SeedRun RunSeed(uint64_t seed, Plant plant);

// Runs a scenario, first without and then with these faults. `verbose`: prints all that happens.
SeedRun RunScenario(const Scenario& scenario, std::vector<Fault> faults, Plant plant,
                    bool verbose = false);

// Looks for a smaller cluster of the same seed and fewer and shorter faults that end with the same
// kind of violation, and returns the smallest one found. REQUIRES: `run` has a violation.
SeedRun MakeSmall(SeedRun run, Plant plant);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_SEED_RUN_H_
