// Runs seeds of the simulation: `--seed=N [--verbose]` or `--seeds=A-B`, and `--plant=NAME` to see
// that a fault in the code would be noticed.

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/process/command_line.h"
#include "spdlog/spdlog.h"
#include "tests/simulation/simulation.h"

namespace {

constexpr size_t kShown = 60;

bool RunOne(uint64_t seed, evenshard::Plant plant, bool verbose, bool brief,
            evenshard::Coverage* coverage) {
  const evenshard::Outcome outcome = evenshard::RunSeed(seed, plant, verbose);
  coverage->Add(outcome.coverage);
  if (outcome.violation.empty()) {
    if (verbose) std::printf("seed %lu: %s\n", seed, outcome.end.c_str());
    return true;
  }
  if (!verbose && !brief) {
    std::printf("%s\n", evenshard::DrawScenario(seed).ToString().c_str());
    const size_t first = outcome.lines.size() > kShown ? outcome.lines.size() - kShown : 0;
    for (size_t i = first; i < outcome.lines.size(); ++i) {
      std::printf("%s\n", outcome.lines[i].c_str());
    }
  }
  std::printf("seed %lu: %s\n", seed, outcome.violation.c_str());
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
