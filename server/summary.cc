#include "server/summary.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"

namespace evenshard {

std::string Ownership(const PlannedConfig& config, int shard) {
  const int64_t parameters = config.plan().shard_parameters(shard);
  return absl::StrCat("owns ", FormatCount(parameters), " parameters (",
                      FormatBytes(parameters * sizeof(float)),
                      ") in chunks: ", config.plan().chunks_of_shard(shard).size());
}

std::string AutoChoice(const PlannedConfig& config) {
  const PlanChoice& choice = config.plan_choice();
  const PlanAlternative& chosen = choice.alternatives[choice.chosen];
  std::vector<std::string> others;
  for (const PlanAlternative& other : choice.alternatives) {
    if (&other == &chosen) continue;
    others.push_back(absl::StrCat(
        other.name, " ", other.refused.empty() ? FormatSeconds(other.seconds) : "impossible"));
  }
  return absl::StrCat("AUTO chose ", chosen.name, ": ", FormatSeconds(chosen.seconds),
                      " an iteration predicted (", absl::StrJoin(others, ", "), ")");
}

std::string Summary(const ShardStats& stats) {
  return absl::StrCat(
      FormatCount(stats.pushes()), " pushes (", stats.repeated_pushes(), " repeated, ",
      stats.skipped_pushes(), " skipped",
      stats.limited_pushes() == 0 ? "" : absl::StrCat(", ", stats.limited_pushes(), " limited"),
      ") and ", FormatCount(stats.pulls()), " pulls, ", FormatBytes(stats.bytes_in()), " in and ",
      FormatBytes(stats.bytes_out()), " out, ", FormatCount(stats.updates()), " chunk updates; ",
      FormatSeconds(stats.aggregate_seconds()), " aggregating, ",
      FormatSeconds(stats.apply_seconds()), " applying; up for ",
      FormatSeconds(stats.uptime_seconds()),
      stats.failure().empty() ? "" : absl::StrCat("; the run FAILED: ", stats.failure()));
}

}  // namespace evenshard
