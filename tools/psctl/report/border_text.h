#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_BORDER_TEXT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_BORDER_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/admin.pb.h"

namespace evenshard {

// Lines about strangers for StatsText, of the process `name`: if it lets anybody in, whom it has
// refused, and whom it has not let in where that is near its limits, so that it may shut out those
// who should come in. Empty if there is none of these.
std::string BorderText(absl::string_view name, ShardStats::Protection protection, uint64_t refusals,
                       const ShardStats::Connections& connections);

// `Stats`: ShardStats or RingStats.
template <typename Stats>
std::string BorderText(absl::string_view name, const Stats& stats) {
  return BorderText(name, stats.protection(), stats.refusals(), stats.connections());
}

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_BORDER_TEXT_H_
