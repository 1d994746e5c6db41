#include "tools/psctl/report/border_text.h"

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace evenshard {

std::string BorderText(absl::string_view name, ShardStats::Protection protection, uint64_t refusals,
                       const ShardStats::Connections& connections) {
  std::string text;
  if (protection == ShardStats::INSECURE) {
    absl::StrAppend(
        &text, name,
        " is insecure: nothing is encrypted, and whoever reaches its port may do everything\n");
  }
  if (refusals > 0) {
    absl::StrAppend(&text, name, " has refused ", FormatCount(refusals),
                    " calls and connections; its log has some of them\n");
  }
  const uint64_t closed = connections.turned_away() + connections.pushed_out() +
                          connections.timed_out() + connections.loud();
  if (closed == 0) return text;
  absl::StrAppend(&text, name, " has ", FormatCount(connections.open()), " of ",
                  FormatCount(connections.limits().connections()), " connections, and has closed ",
                  FormatCount(closed),
                  " of strangers and readers: ", FormatCount(connections.turned_away()),
                  " of too many, ", FormatCount(connections.pushed_out()), " for others, ",
                  FormatCount(connections.timed_out()), " that were late, ",
                  FormatCount(connections.loud()), " that sent too much (limits.strangers)\n");
  return text;
}

}  // namespace evenshard
