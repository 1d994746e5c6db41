#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/reader/process_calls.h"
#include "common/security/tls_files.h"
#include "tools/psctl/report/plan/plan_json.h"
#include "tools/psctl/report/plan/plan_text.h"
#include "tools/psctl/report/ring_report.h"
#include "tools/psctl/verbs/psctl.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl plan --config=FILE [--config=FILE ...] [--set field=value ...]\n\n"
    "Prints what each shard holds and moves in an iteration, and the time that an iteration is\n"
    "predicted to take, before anything runs. The plans of several configs are printed side by\n"
    "side.\n\n"
    "`in` and `out` are the bytes of gradients and parameters for all workers together. 1 MB is\n"
    "1,000,000 bytes. For a ring (topology: RING), what each worker holds and sends, and the\n"
    "buckets.";

}  // namespace

int PlanVerb(int argc, const char* const* argv) {
  std::vector<std::string> names;
  std::vector<std::string> overrides;
  std::string format = "table";
  std::optional<double> gbps;
  const Flag flags[] = {
      {"config", "FILE", "the run's config; may be repeated", &names, true},
      {"set", "FIELD=VALUE", "overrides a field of every config; may be repeated", &overrides},
      FormatFlag(&format),
      {"gbps", "RATE",
       "rate of every link in Gb/s, for the prediction; default: the config's links, or 10", &gbps},
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;

  // What the run is asked, for its workers' model, is asked with the operator's certificate.
  overrides.insert(overrides.begin(), NameOverride({.role = Role::kOperator}));
  std::vector<PlannedConfig> configs;
  for (const std::string& name : names) {
    absl::StatusOr<PlannedConfig> config = LoadWithModel(name, overrides);
    if (!config.ok()) {
      const bool is_early = absl::IsUnavailable(config.status());  // for a model from workers
      return PrintError(config.status(), is_early ? kPsctlFailure : kPsctlUsage);
    }
    configs.push_back(*std::move(config));
  }
  if (std::any_of(configs.begin(), configs.end(),
                  [](const PlannedConfig& config) { return config.is_ring(); })) {
    if (configs.size() > 1) {
      std::cerr << "psctl plan: --config: is given several times, and one has topology RING, which "
                   "has no shards to compare, allowed: that one alone\n";
      return kPsctlUsage;
    }
    std::cout << (format == "json" ? RingPlanJson(names[0], configs[0], gbps)
                                   : RingPlanText(names[0], configs[0], gbps));
    return kPsctlOk;
  }
  if (format == "json") {
    std::cout << PlanJson(names, configs, gbps);
  } else if (configs.size() == 1) {
    std::cout << PlanText(names[0], configs[0], gbps);
  } else {
    std::cout << PlanComparison(names, configs, gbps);
  }
  return kPsctlOk;
}

}  // namespace evenshard
