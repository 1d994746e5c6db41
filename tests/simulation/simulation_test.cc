#include "tests/simulation/simulation.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>

#include "spdlog/spdlog.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/seed_run.h"

namespace evenshard {
namespace {

constexpr uint64_t kSeeds = 2000;

// Returns the run of the first seed in which something is noticed that is not without the fault.
std::optional<SeedRun> FirstNoticed(Plant plant, uint64_t seeds) {
  constexpr Extent kMost = {.lasting = true};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SeedRun run = RunSeed(seed, kMost, plant);
    if (run.outcome.violation.empty()) continue;
    if (RunSeed(seed, kMost, Plant::kNone).outcome.violation.empty()) return run;
  }
  return std::nullopt;
}

TEST_CASE("a run keeps what recovery promises, whatever befalls it") {
  spdlog::set_level(spdlog::level::off);
  Coverage coverage;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = RunSeed(seed, {}, Plant::kNone).outcome;
    INFO("bazel run //tests/simulation:main -- --seed=" << seed);
    REQUIRE(outcome.violation == "");
    coverage.Add(outcome.coverage);
  }
  INFO(coverage.ToString());
  // What is not met is not tested.
  CHECK(coverage.lost_changes > 50);
  CHECK(coverage.takeovers > 100);
  CHECK(coverage.handovers > 50);
  CHECK(coverage.checkpoints > 1000);
  CHECK(coverage.restored > 100);
  CHECK(coverage.begun_anew > 20);
  CHECK(coverage.losses > 50);
  CHECK(coverage.joins > 20);
  CHECK(coverage.repeats > 1000);
}

TEST_CASE("a seed gives the same run each time") {
  spdlog::set_level(spdlog::level::off);
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Outcome first = RunSeed(seed, {}, Plant::kNone).outcome;
    const Outcome second = RunSeed(seed, {}, Plant::kNone).outcome;
    CAPTURE(seed);
    REQUIRE(first.lines == second.lines);
    REQUIRE(first.steps == second.steps);
  }
}

TEST_CASE("whatever is broken on purpose is noticed") {
  spdlog::set_level(spdlog::level::off);
  for (const Plant plant : AllPlants()) {
    CAPTURE(PlantName(plant));
    // A slot is handed over in few runs, and rarely so that it shows.
    const std::optional<SeedRun> noticed = FirstNoticed(plant, 5 * kSeeds);
    REQUIRE(noticed.has_value());
    WARN(PlantName(plant) << " is noticed in seed " << noticed->scenario.seed << ": "
                          << noticed->outcome.violation);
  }
}

TEST_CASE("a failing run is made small") {
  spdlog::set_level(spdlog::level::off);
  for (uint64_t seed = 1;; ++seed) {
    const SeedRun run = RunSeed(seed, {}, Plant::kCountsRepeats);
    if (run.outcome.violation.empty() || run.faults.size() < 3 || run.scenario.nodes() < 6)
      continue;
    const SeedRun small = MakeSmall(run, Plant::kCountsRepeats);
    CAPTURE(seed, run.ToString(), small.ToString());
    CHECK(small.outcome.violation != "");
    CHECK(small.faults.size() < run.faults.size());
    CHECK(small.scenario.nodes() < run.scenario.nodes());
    // It can be run again from what it says.
    CHECK(RunScenario(small.scenario, small.faults, Plant::kCountsRepeats).outcome.violation ==
          small.outcome.violation);
    return;
  }
}

}  // namespace
}  // namespace evenshard
