#include "tests/simulation/simulation.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>

#include "spdlog/spdlog.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/seed_run.h"

namespace evenshard {
namespace {

constexpr uint64_t kSeeds = 1400;
// Within so many seeds whatever is planted must be noticed. Some of it shows in few runs.
constexpr uint64_t kPlantSeeds = 5000;

// Returns the run of the first seed in which the fault is noticed.
std::optional<SeedRun> FirstNoticed(Plant plant) {
  for (uint64_t seed = 1; seed <= kPlantSeeds; ++seed) {
    if (!MayShow(plant, DrawScenario(seed))) continue;
    SeedRun run = RunSeed(seed, plant);
    if (!run.outcome.violation.empty()) return run;
  }
  return std::nullopt;
}

TEST_CASE("a run keeps what recovery promises, whatever befalls it") {
  spdlog::set_level(spdlog::level::off);
  Coverage coverage;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = RunSeed(seed, Plant::kNone).outcome;
    INFO("bazel run //tests/simulation:main -- --seed=" << seed);
    REQUIRE(outcome.violation == "");
    coverage.Add(outcome.coverage);
  }
  INFO(coverage.ToString());
  // What is not met is not tested.
  CHECK(coverage.lost_changes > 15);
  CHECK(coverage.takeovers > 80);
  CHECK(coverage.handovers > 40);
  CHECK(coverage.checkpoints > 1000);
  CHECK(coverage.restored > 100);
  CHECK(coverage.begun_anew > 50);
  CHECK(coverage.losses > 40);
  CHECK(coverage.joins > 12);
  CHECK(coverage.repeats > 1000);
  CHECK(coverage.reads > 10000);
  CHECK(coverage.norms > 100);
  CHECK(coverage.limited > 10000);
  CHECK(coverage.bounded > 1000);
  CHECK(coverage.dropped > 1000);
  CHECK(coverage.corrected > 10000);
  // Only what was sent just before the end of a primary is not known to the next one.
  CHECK(coverage.uncorrected > 0);
  CHECK(coverage.uncorrected < coverage.corrected / 100);
}

TEST_CASE("a seed gives the same run each time") {
  spdlog::set_level(spdlog::level::off);
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Outcome first = RunSeed(seed, Plant::kNone).outcome;
    const Outcome second = RunSeed(seed, Plant::kNone).outcome;
    CAPTURE(seed);
    REQUIRE(first.lines == second.lines);
    REQUIRE(first.steps == second.steps);
  }
}

TEST_CASE("whatever is broken on purpose is noticed") {
  spdlog::set_level(spdlog::level::off);
  for (const Plant plant : AllPlants()) {
    CAPTURE(PlantName(plant));
    const std::optional<SeedRun> noticed = FirstNoticed(plant);
    REQUIRE(noticed.has_value());
    WARN(PlantName(plant) << " is noticed in seed " << noticed->scenario.seed << ": "
                          << noticed->outcome.violation);
  }
}

TEST_CASE("a failing run is made small") {
  spdlog::set_level(spdlog::level::off);
  for (uint64_t seed = 1;; ++seed) {
    const SeedRun run = RunSeed(seed, Plant::kCountsRepeats);
    if (run.outcome.violation.empty() || run.faults.size() < 3 || run.scenario.nodes() < 6)
      continue;
    const SeedRun small = MakeSmall(run, Plant::kCountsRepeats);
    if (small.scenario.nodes() == run.scenario.nodes()) continue;
    CAPTURE(seed, run.ToString(), small.ToString());
    CHECK(small.outcome.violation != "");
    CHECK(small.faults.size() < run.faults.size());
    // It can be run again from what it says.
    CHECK(RunScenario(small.scenario, small.faults, Plant::kCountsRepeats).outcome.violation ==
          small.outcome.violation);
    return;
  }
}

}  // namespace
}  // namespace evenshard
