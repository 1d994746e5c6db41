// Runs seeds of the simulation: `--seed=N [--verbose]` or `--seeds=A-B`, and `--plant=NAME` to see
// that a fault in the code would be noticed. A seed that fails is made small before it is printed.

#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/process/command_line.h"
#include "spdlog/spdlog.h"
#include "tests/simulation/seed_run.h"

namespace {

using evenshard::Plant;
using evenshard::SeedRun;

constexpr size_t kShown = 60;

// Prints a run that has failed, as small as it can be made.
void Show(const SeedRun& failed, Plant plant, bool verbose) {
  const SeedRun small = evenshard::MakeSmall(failed, plant);
  const evenshard::Scenario& before = failed.scenario;
  const evenshard::Scenario& after = small.scenario;
  std::printf("made small: %zu of %zu faults, %d of %d ps, %d of %d workers\n", small.faults.size(),
              failed.faults.size(), after.processes(), before.processes(), after.workers,
              before.workers);
  if (verbose) {
    evenshard::RunScenario(after, small.faults, plant, /*verbose=*/true);
  } else {
    std::printf("%s", small.ToString().c_str());
    const std::deque<std::string>& lines = small.outcome.lines;
    const size_t first = lines.size() > kShown ? lines.size() - kShown : 0;
    for (size_t i = first; i < lines.size(); ++i) std::printf("%s\n", lines[i].c_str());
  }
  std::printf("made small, seed %lu: %s\n", after.seed, small.outcome.violation.c_str());
}

bool RunOne(uint64_t seed, Plant plant, bool verbose, bool brief, evenshard::Coverage* coverage) {
  if (!evenshard::MayShow(plant, evenshard::DrawScenario(seed))) return true;
  const SeedRun run = evenshard::RunSeed(seed, plant);
  coverage->Add(run.outcome.coverage);
  if (run.outcome.violation.empty()) {
    if (!verbose) return true;
    evenshard::RunScenario(run.scenario, run.faults, plant, /*verbose=*/true);
    std::printf("seed %lu: %s\n", seed, run.outcome.end.c_str());
    return true;
  }
  if (!brief) Show(run, plant, verbose);
  std::printf("seed %lu: %s\n", seed, run.outcome.violation.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::string seed;
  std::string seeds;
  std::string plant_name = evenshard::PlantName(evenshard::Plant::kNone);
  bool verbose = false;
  bool keep_going = false;
  std::vector<std::string> plants = {plant_name};
  for (const evenshard::Plant each : evenshard::AllPlants())
    plants.push_back(evenshard::PlantName(each));
  const std::optional<int> code = evenshard::ParseCommandLine(
      "Usage: main --seed=N | --seeds=FIRST-LAST",
      {{{.name = "seed", .value = "N", .help = "the seed to run", .target = &seed},
        {.name = "seeds", .value = "FIRST-LAST", .help = "the seeds to run", .target = &seeds},
        {.name = "plant",
         .value = "FAULT",
         .help = "what to break on purpose",
         .target = &plant_name,
         .allowed = plants},
        {.name = "verbose", .value = "", .help = "say all that happens", .target = &verbose},
        {.name = "keep_going",
         .value = "",
         .help = "go on after a seed with a violation",
         .target = &keep_going}}},
      argc, argv);
  if (code.has_value()) return *code;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // whoever ends a long run sees what it has found
  spdlog::set_level(verbose ? spdlog::level::info : spdlog::level::off);
  spdlog::set_pattern("           %v");
  evenshard::Plant plant = evenshard::Plant::kNone;
  for (const evenshard::Plant each : evenshard::AllPlants()) {
    if (evenshard::PlantName(each) == plant_name) plant = each;
  }
  uint64_t first = 0;
  uint64_t last = 0;
  const std::vector<std::string> range = absl::StrSplit(seeds.empty() ? seed : seeds, '-');
  if (!absl::SimpleAtoi(range.front(), &first) || !absl::SimpleAtoi(range.back(), &last)) {
    std::fprintf(stderr, "give --seed=N or --seeds=FIRST-LAST\n");
    return 2;
  }
  int failed = 0;
  evenshard::Coverage coverage;
  for (uint64_t s = first; s <= last; ++s) {
    if (RunOne(s, plant, verbose, keep_going, &coverage)) continue;
    ++failed;
    if (!keep_going) break;
  }
  if (first != last) {
    std::printf("%s\n%d seeds with violations\n", coverage.ToString().c_str(), failed);
  }
  return failed == 0 ? 0 : 1;
}
