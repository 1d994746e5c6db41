#include "tools/psctl/report/ring_stats_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "tools/psctl/report/border_text.h"
#include "tools/psctl/report/usage_text.h"

namespace evenshard {
namespace {

std::string StateOf(const ClusterReport& report, size_t rank) {
  const WorkerReport& worker = report.workers[rank];
  if (worker.stats.ok()) return worker.stats->failure().empty() ? "up" : "failed";
  return report.is_left_out(static_cast<int>(rank)) ? "left out" : "unreachable";
}

// Returns the worker's answer in `report`, or null if its counts have begun anew since.
const RingStats* Before(const ClusterReport* report, size_t rank, const RingStats& stats) {
  if (report == nullptr || !report->workers[rank].stats.ok()) return nullptr;
  const RingStats& before = *report->workers[rank].stats;
  return before.incarnation() == stats.incarnation() ? &before : nullptr;
}

std::string WorkerTable(const ClusterReport& report, const ClusterReport* earlier) {
  std::vector<std::string> headings = {">worker",   "address", "state",   ">iteration",  ">sent",
                                       ">received", ">waited", ">uptime", "incarnation", "plan"};
  if (earlier != nullptr) {
    headings.insert(headings.end(), {">iterations/s", ">sent/s", ">received/s"});
  }
  Table table(headings);
  for (size_t rank = 0; rank < report.workers.size(); ++rank) {
    const WorkerReport& worker = report.workers[rank];
    std::vector<std::string> row = {absl::StrCat(rank), worker.address, StateOf(report, rank)};
    if (worker.stats.ok()) {
      const RingStats& stats = *worker.stats;
      row.insert(row.end(), {FormatCount(stats.iteration()), FormatBytes(stats.bytes_out()),
                             FormatBytes(stats.bytes_in()), FormatSeconds(stats.wait_seconds()),
                             FormatSeconds(stats.uptime_seconds()),
                             absl::StrFormat("%016x", stats.incarnation()),
                             absl::StrFormat("%016x", stats.plan_fingerprint())});
      if (const RingStats* before = Before(earlier, rank, stats)) {
        const double seconds = absl::ToDoubleSeconds(report.time - earlier->time);
        row.insert(row.end(),
                   {absl::StrFormat("%.1f", (stats.iteration() - before->iteration()) / seconds),
                    FormatBytes((stats.bytes_out() - before->bytes_out()) / seconds),
                    FormatBytes((stats.bytes_in() - before->bytes_in()) / seconds)});
      }
    }
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

// Lines about each worker that does not answer, has failed, waits or has met strangers.
std::string Troubles(const ClusterReport& report) {
  std::string text;
  for (size_t rank = 0; rank < report.workers.size(); ++rank) {
    const WorkerReport& worker = report.workers[rank];
    const std::string name = absl::StrCat("worker ", rank);
    if (report.is_left_out(static_cast<int>(rank))) continue;
    if (!worker.stats.ok()) {
      absl::StrAppend(&text, name, " (", worker.address,
                      ") is unreachable: ", Printable(worker.stats.status().message()), "\n");
      continue;
    }
    const RingStats& stats = *worker.stats;
    if (!stats.failure().empty()) {
      absl::StrAppend(&text, name, " has given the run up: ", Printable(stats.failure()), "\n");
    }
    absl::StrAppend(&text, BorderText(name, stats));
    if (stats.has_wait()) {
      absl::StrAppend(&text, name, " has waited ", FormatSeconds(stats.wait().seconds()),
                      " in iteration ", stats.wait().iteration(), ": ",
                      Printable(stats.wait().missing()), "\n");
    }
  }
  return text;
}

// A line about the ring of a run with recovery.
std::string Generation(const RingStats& ring) {
  if (ring.generation() == 0) return "";
  return absl::StrCat("the ring of generation ", ring.generation(), " has the workers ",
                      absl::StrJoin(ring.member(), ", "), "\n");
}

}  // namespace

std::string RingStatsText(const ClusterReport& report, const ClusterReport* earlier) {
  std::string text = absl::StrCat(WorkerTable(report, earlier), Troubles(report));
  const RingStats* const ring = report.newest_ring();
  if (ring == nullptr) return text;
  std::vector<ReportedUsage> usages;
  for (size_t rank = 0; rank < report.workers.size(); ++rank) {
    const WorkerReport& worker = report.workers[rank];
    ReportedUsage usage = {.worker = static_cast<uint32_t>(rank)};
    if (worker.stats.ok() && worker.stats->has_usage()) {
      usage.usage = &worker.stats->usage();
      usage.seconds_ago = worker.stats->usage_seconds_ago();
    }
    usages.push_back(usage);
  }
  return absl::StrCat(text, Generation(*ring), "\n", UsageText(usages));
}

}  // namespace evenshard
