#include "server/summary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ps {

std::string Ownership(const Config& config, int shard) {
  const int64_t parameters = config.plan().shard_parameters(shard);
  return absl::StrFormat("owns %d parameters (%.1f MB) in %d chunks", parameters,
                         parameters * sizeof(float) * 1e-6,
                         config.plan().chunks_of_shard(shard).size());
}

std::string Summary(const ShardStats& stats) {
  return absl::StrFormat(
      "%d pushes (%d repeated, %d skipped) and %d pulls, %.1f MB in and %.1f MB out, %d chunk "
      "updates; %.1f s aggregating, %.1f s applying; up for %.1f s%s",
      stats.pushes(), stats.repeated_pushes(), stats.skipped_pushes(), stats.pulls(),
      stats.bytes_in() * 1e-6, stats.bytes_out() * 1e-6, stats.updates(), stats.aggregate_seconds(),
      stats.apply_seconds(), stats.uptime_seconds(),
      stats.failure().empty() ? "" : absl::StrCat("; the run FAILED: ", stats.failure()));
}

}  // namespace ps
