#include "tests/simulation/seed_run.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace evenshard {
namespace {

// How many runs a failing one may cost to be made small.
constexpr int kTries = 300;
constexpr absl::Duration kShortest = absl::Milliseconds(20);

// Where two runs of the same worker set came apart. Empty if nowhere.
std::string Difference(const std::vector<std::vector<ChangeRecord>>& without_faults,
                       const std::vector<std::vector<ChangeRecord>>& with_faults) {
  for (size_t i = 0; i < without_faults.front().size(); ++i) {
    for (size_t chunk = 0; chunk < without_faults.size(); ++chunk) {
      if (i >= with_faults[chunk].size()) {
        return absl::StrCat("chunk ", chunk, " has ", i, " updates, a run without faults has ",
                            without_faults[chunk].size());
      }
      const ChangeRecord& with = with_faults[chunk][i];
      if (with.state.HasBitsOf(without_faults[chunk][i].state)) continue;
      return absl::StrCat("chunk ", chunk, " has other bits than in a run without faults from ",
                          "iteration ", with.iteration, " of workers ",
                          absl::StrJoin(with.workers, " "), " on");
    }
  }
  return "";
}

// Runs a scenario without faults, and then with what `faults_of` makes of its duration.
template <typename FaultsOf>
SeedRun RunTwice(const Scenario& scenario, const FaultsOf& faults_of, Plant plant, bool verbose) {
  SeedRun run{.scenario = scenario};
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(scenario.config, "scenario");
  if (!config.ok()) {
    run.outcome.violation = absl::StrCat("the config: ", config.status().ToString());
    return run;
  }
  Outcome reference = Simulation(scenario, &*config, {}, Plant::kNone, false).Run();
  run.faults = faults_of(reference.lasted);
  if (!reference.violation.empty()) {
    run.outcome = std::move(reference);
    run.outcome.violation = absl::StrCat("without faults: ", run.outcome.violation);
    return run;
  }
  if (verbose) std::fprintf(stdout, "%s\n", run.ToString().c_str());
  std::optional<PlannedConfig> broken;
  if (plant == Plant::kAllowsStaleness && scenario.staleness) {
    broken = PlannedConfig::Parse(scenario.config, "scenario", {"update.staleness=1000"}).value();
  }
  run.outcome =
      Simulation(scenario, broken ? &*broken : &*config, run.faults, plant, verbose).Run();
  if (run.outcome.violation.empty() && run.outcome.end == "finished" &&
      reference.end == "finished" && scenario.sync && !scenario.quorum &&
      run.outcome.whole_worker_set && run.outcome.coverage.mixed == 0 &&
      reference.whole_worker_set && reference.coverage.mixed == 0 &&
      run.outcome.coverage.forgotten == 0) {
    run.outcome.violation = Difference(reference.history, run.outcome.history);
  }
  return run;
}

// What two violations of the same kind have in common: their first words, without numbers.
std::string KindOf(const std::string& violation) {
  constexpr size_t kWords = 5;
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(violation, ' ')) {
    const bool has_digit = std::any_of(word.begin(), word.end(), absl::ascii_isdigit);
    if (!has_digit && words.size() < kWords) words.emplace_back(word);
  }
  return absl::StrJoin(words, " ");
}

// Makes one failing run smaller, step by step.
class Shrinker {
 public:
  Shrinker(SeedRun run, Plant plant)
      : best_(std::move(run)), plant_(plant), kind_(KindOf(best_.outcome.violation)) {}

  SeedRun Shrink() {
    bool smaller = true;
    while (smaller && tries_ < kTries) {
      smaller = LeaveOutFaults();
      smaller |= Lessen(&Extent::spares, 0) | Lessen(&Extent::workers, 1);
      smaller |= Lessen(&Extent::slots, 1) | Lessen(&Extent::iterations, 1);
      smaller |= ShortenFaults();
    }
    return std::move(best_);
  }

 private:
  // Keeps the run if it fails in the same way.
  bool Try(const Scenario& scenario, std::vector<Fault> faults) {
    if (tries_++ >= kTries) return false;
    SeedRun run = RunScenario(scenario, std::move(faults), plant_);
    if (KindOf(run.outcome.violation) != kind_) return false;
    best_ = std::move(run);
    return true;
  }

  bool LeaveOutFaults() {
    bool smaller = false;
    for (size_t i = best_.faults.size(); i-- > 0;) {
      std::vector<Fault> faults = best_.faults;
      faults.erase(faults.begin() + static_cast<std::ptrdiff_t>(i));
      smaller |= Try(best_.scenario, std::move(faults));
    }
    return smaller;
  }

  bool Lessen(int Extent::*what, int least) {
    const Scenario& now = best_.scenario;
    Extent most = {.slots = now.slots,
                   .spares = now.spares,
                   .workers = now.workers,
                   .iterations = now.iterations};
    bool smaller = false;
    while (most.*what > least) {
      most.*what = what == &Extent::iterations ? std::max(least, most.*what / 2) : most.*what - 1;
      const Scenario scenario = DrawScenario(now.seed, most);
      if (!Try(scenario, FaultsIn(scenario, best_.scenario, best_.faults))) break;
      smaller = true;
    }
    return smaller;
  }

  bool ShortenFaults() {
    bool smaller = false;
    for (size_t i = 0; i < best_.faults.size(); ++i) {
      while (absl::AbsDuration(best_.faults[i].lasts) > kShortest) {
        std::vector<Fault> faults = best_.faults;
        faults[i].lasts /= 2;
        if (!Try(best_.scenario, std::move(faults))) break;
        smaller = true;
      }
    }
    return smaller;
  }

  SeedRun best_;
  const Plant plant_;
  const std::string kind_;
  int tries_ = 0;
};

}  // namespace

std::string SeedRun::ToString() const {
  std::string text = scenario.ToString();
  for (const Fault& fault : faults) {
    absl::StrAppend(
        &text, "  after ", absl::FormatDuration(absl::Trunc(fault.at, absl::Microseconds(100))),
        fault.at_end ? " of a worker's end" : "", ": ", fault.ToString(scenario.NodeNames()), "\n");
  }
  return text;
}

bool MayShow(Plant plant, const Scenario& scenario) {
  const std::vector<Fault> faults = scenario.DrawFaults(absl::Seconds(1));
  const auto has = [&](Fault::Kind kind) {
    return std::any_of(faults.begin(), faults.end(),
                       [kind](const Fault& fault) { return fault.kind == kind; });
  };
  switch (plant) {
    case Plant::kAnswersBeforeCopy:
    case Plant::kReportsFilledEarly:
      return scenario.replicas > 0;
    case Plant::kForgetsNorms:
      return scenario.replicas > 0 && scenario.slots > 1 && scenario.clips;
    case Plant::kAllowsStaleness:
      return scenario.staleness.has_value() && scenario.workers > 1;
    case Plant::kForgetsSets:
      return scenario.replicas > 0 && scenario.quorum.has_value();
    case Plant::kMixesSets:
      return scenario.quorum.has_value() && scenario.slots > 1;
    case Plant::kIgnoresLate:
      return scenario.quorum.has_value();
    case Plant::kForgetsSent:
      return scenario.replicas > 0 && scenario.corrects;
    case Plant::kSettlesEarly:
      return scenario.config.find("error_feedback") != std::string::npos;
    case Plant::kGivesThirdSlot:
      return scenario.replicas > 0 && scenario.slots > 2;
    case Plant::kHidesUnreachable:
      return scenario.replicas > 0 && scenario.lasting && has(Fault::Kind::kCut);
    case Plant::kLeavesOutSync:
      return scenario.has_checkpoints && has(Fault::Kind::kLosePower);
    case Plant::kEndsAtReadErrors:
      return scenario.has_checkpoints && !scenario.etcd && has(Fault::Kind::kReadErrors);
    case Plant::kLeavesFolderFree:
      return scenario.has_checkpoints && scenario.etcd &&
             (has(Fault::Kind::kCoordinator) || has(Fault::Kind::kPause));
    case Plant::kInconsistentCut:
    case Plant::kMovesCuts:
      return scenario.has_checkpoints;
    case Plant::kKeepsAll:
      return scenario.has_checkpoints && scenario.lasting;
    case Plant::kEndsWhenFinished:
      return scenario.has_checkpoints && scenario.etcd && !scenario.restarts_finished &&
             absl::c_any_of(faults, [](const Fault& fault) { return fault.at_end; });
    case Plant::kGivesUpLostSlots:
    case Plant::kGivesUpUntaken:
      return scenario.lasting;
    case Plant::kBeatsByTimeOfDay:
      return !scenario.etcd && has(Fault::Kind::kStepClock);
    case Plant::kPublishesUnfenced:
    case Plant::kTrustsLease:
      return scenario.etcd && scenario.lasting;
    default:
      return true;
  }
}

SeedRun RunSeed(uint64_t seed, Plant plant) {
  const Scenario scenario = DrawScenario(seed);
  SeedRun run = RunTwice(
      scenario, [&](absl::Duration duration) { return scenario.DrawFaults(duration); }, plant,
      /*verbose=*/false);
  if (plant != Plant::kNone && !run.outcome.violation.empty() &&
      !RunScenario(scenario, run.faults, Plant::kNone).outcome.violation.empty()) {
    run.outcome.violation.clear();
  }
  return run;
}

SeedRun RunScenario(const Scenario& scenario, std::vector<Fault> faults, Plant plant,
                    bool verbose) {
  return RunTwice(
      scenario, [&](absl::Duration) { return std::move(faults); }, plant, verbose);
}

SeedRun MakeSmall(SeedRun run, Plant plant) { return Shrinker(std::move(run), plant).Shrink(); }

}  // namespace evenshard
