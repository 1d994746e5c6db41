#include "tools/psctl/report/stats_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/text.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "tools/psctl/report/border_text.h"
#include "tools/psctl/report/ring_stats_text.h"
#include "tools/psctl/report/usage_text.h"

namespace evenshard {
namespace {

std::string ShardState(const ShardReport& shard) {
  if (!shard.stats.ok()) return "unreachable";
  return shard.stats->failure().empty() ? "up" : "failed";
}

std::string ShardTable(const ClusterReport& report) {
  Table table({">shard", "address", "state", ">parameters", ">bytes", ">chunks", ">resident",
               ">uptime", "incarnation", "plan"});
  for (size_t i = 0; i < report.shards.size(); ++i) {
    const ShardReport& shard = report.shards[i];
    std::vector<std::string> row = {absl::StrCat(i), shard.address, ShardState(shard)};
    if (shard.stats.ok()) {
      const ShardStats& stats = *shard.stats;
      row.insert(row.end(), {FormatCount(stats.parameters()), FormatBytes(stats.parameter_bytes()),
                             FormatCount(stats.chunks()), FormatBytes(stats.resident_bytes()),
                             FormatSeconds(stats.uptime_seconds()),
                             absl::StrFormat("%016x", stats.incarnation()),
                             absl::StrFormat("%016x", stats.plan_fingerprint())});
    }
    table.AddRow(std::move(row));
  }
  std::string text = table.ToString();
  for (size_t i = 0; i < report.shards.size(); ++i) {
    const ShardReport& shard = report.shards[i];
    if (!shard.stats.ok()) {
      absl::StrAppend(&text, "shard ", i, " (", shard.address,
                      ") is unreachable: ", Printable(shard.stats.status().message()), "\n");
      continue;
    }
    const ShardStats& stats = *shard.stats;
    if (!stats.failure().empty()) {
      absl::StrAppend(&text, "shard ", i, " has given the run up: ", Printable(stats.failure()),
                      "\n");
    }
    absl::StrAppend(&text, BorderText(absl::StrCat("shard ", i), stats));
  }
  return text;
}

// Returns the shard's answer in `report`, or null if the shard's counts have begun anew since: in
// another process, or since it went back to a checkpoint or came back to this process.
const ShardStats* Before(const ClusterReport* report, size_t shard, const ShardStats& stats) {
  if (report == nullptr || !report->shards[shard].stats.ok()) return nullptr;
  const ShardStats& before = *report->shards[shard].stats;
  const bool same = before.incarnation() == stats.incarnation() &&
                    before.recovery().generation() == stats.recovery().generation() &&
                    before.updates() <= stats.updates() && before.bytes_in() <= stats.bytes_in() &&
                    before.bytes_out() <= stats.bytes_out();
  return same ? &before : nullptr;
}

// "0.3", or "1,234"
std::string FormatRate(double per_second) {
  constexpr double kWhole = 9.95;  // from which on no decimal is needed
  return per_second < kWhole ? absl::StrFormat("%.1f", per_second)
                             : FormatCount(std::llround(per_second));
}

std::string ExchangeTable(const ClusterReport& report, const ClusterReport* earlier) {
  std::vector<std::string> headings = {">shard",   ">pushes", ">repeated", ">skipped",
                                       ">updates", ">pulls",  ">in",       ">out"};
  if (earlier != nullptr) headings.insert(headings.end(), {">updates/s", ">in/s", ">out/s"});
  Table table(headings);
  for (size_t i = 0; i < report.shards.size(); ++i) {
    if (!report.shards[i].stats.ok()) continue;
    const ShardStats& stats = *report.shards[i].stats;
    std::vector<std::string> row = {
        absl::StrCat(i),
        FormatCount(stats.pushes()),
        FormatCount(stats.repeated_pushes()),
        FormatCount(stats.skipped_pushes()),
        FormatCount(stats.updates()),
        FormatCount(stats.pulls()),
        FormatBytes(stats.bytes_in()),
        FormatBytes(stats.bytes_out()),
    };
    if (const ShardStats* before = Before(earlier, i, stats)) {
      const double seconds = absl::ToDoubleSeconds(report.time - earlier->time);
      row.insert(row.end(),
                 {FormatRate((stats.updates() - before->updates()) / seconds),
                  absl::StrCat(FormatBytes((stats.bytes_in() - before->bytes_in()) / seconds)),
                  absl::StrCat(FormatBytes((stats.bytes_out() - before->bytes_out()) / seconds))});
    }
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

// "0: 70.0%, 1-2: 30.0%"
std::string StalenessText(const ShardStats& stats) {
  uint64_t pushes = 0;
  for (const StalenessBucket& bucket : stats.staleness()) pushes += bucket.pushes();
  std::vector<std::string> parts;
  for (const StalenessBucket& bucket : stats.staleness()) {
    if (bucket.pushes() == 0) continue;
    std::string range = absl::StrCat(bucket.from());
    if (bucket.to() == std::numeric_limits<uint64_t>::max()) {
      range += "+";
    } else if (bucket.to() != bucket.from()) {
      absl::StrAppend(&range, "-", bucket.to());
    }
    parts.push_back(
        absl::StrCat(range, ": ", FormatPercent(static_cast<double>(bucket.pushes()) / pushes)));
  }
  return absl::StrJoin(parts, ", ");
}

std::string TimeTable(const ClusterReport& report) {
  Table table({">shard", ">aggregating", ">applying", ">mean wait for the slowest worker",
               "pushes by staleness"});
  for (size_t i = 0; i < report.shards.size(); ++i) {
    if (!report.shards[i].stats.ok()) continue;
    const ShardStats& stats = *report.shards[i].stats;
    table.AddRow(
        {absl::StrCat(i), FormatSeconds(stats.aggregate_seconds()),
         FormatSeconds(stats.apply_seconds()),
         FormatSeconds(stats.straggler_wait_seconds() / std::max<uint64_t>(stats.updates(), 1)),
         StalenessText(stats)});
  }
  return table.ToString();
}

// How the shards recover from failures, and a line for each whose last checkpoint failed. Empty if
// the run has no `recovery`.
std::string RecoveryTable(const ClusterReport& report) {
  Table table({">shard", ">view", ">generation", ">unconfirmed", ">to fill", ">checkpoint", ">age",
               ">held up", ">failed"});
  std::string failures;
  bool any = false;
  for (size_t i = 0; i < report.shards.size(); ++i) {
    if (!report.shards[i].stats.ok() || !report.shards[i].stats->has_recovery()) continue;
    any = true;
    const ShardStats::Recovery& recovery = report.shards[i].stats->recovery();
    table.AddRow(
        {absl::StrCat(i), absl::StrCat(recovery.view()), absl::StrCat(recovery.generation()),
         FormatCount(recovery.replication_lag()), FormatCount(recovery.unfilled_chunks()),
         recovery.has_checkpoint_iteration() ? absl::StrCat(recovery.checkpoint_iteration()) : "-",
         recovery.has_checkpoint_age_seconds() ? FormatSeconds(recovery.checkpoint_age_seconds())
                                               : "-",
         FormatSeconds(recovery.checkpoint_wait_seconds()),
         FormatCount(recovery.checkpoint_failures())});
    if (!recovery.last_checkpoint_failure().empty()) {
      absl::StrAppend(&failures, "shard ", i,
                      ": a checkpoint failed: ", Printable(recovery.last_checkpoint_failure()),
                      "\n");
    }
  }
  return any ? absl::StrCat("\n", table.ToString(), failures) : "";
}

// A line for each shard on which an update waits for workers.
std::string Waits(const ClusterReport& report) {
  constexpr int kListed = 10;
  std::string text;
  for (size_t i = 0; i < report.shards.size(); ++i) {
    if (!report.shards[i].stats.ok() || !report.shards[i].stats->has_wait()) continue;
    const ShardStats::Wait& wait = report.shards[i].stats->wait();
    const int listed = std::min(wait.worker_size(), kListed);
    absl::StrAppend(&text, "shard ", i, ": iteration ", wait.iteration(), " has waited ",
                    FormatSeconds(wait.seconds()), " for worker ",
                    absl::StrJoin(wait.worker().begin(), wait.worker().begin() + listed, ", "),
                    wait.worker_size() > listed
                        ? absl::StrCat(" and ", wait.worker_size() - listed, " more")
                        : "",
                    "\n");
  }
  return text;
}

// A line that says whose gradients are in the latest update, under QUORUM.
std::string LatestSet(const ClusterReport& report) {
  const ShardStats* latest = nullptr;
  for (const ShardReport& shard : report.shards) {
    if (!shard.stats.ok() || !shard.stats->has_quorum()) continue;
    if (latest == nullptr || latest->quorum().iteration() < shard.stats->quorum().iteration()) {
      latest = &*shard.stats;
    }
  }
  if (latest == nullptr) return "";
  return absl::StrCat("the gradients of ", latest->quorum().worker_size(), " of ",
                      latest->worker_size(), " workers count in iteration ",
                      latest->quorum().iteration(), ": ",
                      absl::StrJoin(latest->quorum().worker(), ", "), "\n");
}

std::string StateName(WorkerStats::State state) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(WorkerStats::State_Name(state)), {{"_", " "}});
}

// What all shards together know about one worker.
struct WorkerSummary {
  std::set<std::string> states;
  std::string address;  // as seen by the first shard that knows it
  int shards = 0;       // the number of shards that it has joined
  int sharing = 0;      // how many of them share its memory
  uint64_t first_iteration = std::numeric_limits<uint64_t>::max();
  uint64_t last_iteration = 0;
  double last_seen_seconds_ago = std::numeric_limits<double>::infinity();
  uint64_t pushes = 0;
  uint64_t repeated_pushes = 0;
  uint64_t skipped_pushes = 0;
  uint64_t limited_pushes = 0;
  uint64_t counted_iterations = 0;  // as the shard says that has seen most of them
  uint64_t dropped_iterations = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  const WorkerStats* usage = nullptr;  // the one with the latest report; null: there is none
};

std::map<uint32_t, WorkerSummary> Workers(const ClusterReport& report) {
  std::map<uint32_t, WorkerSummary> workers;
  for (const ShardReport& shard : report.shards) {
    if (!shard.stats.ok()) continue;
    for (const WorkerStats& stats : shard.stats->worker()) {
      WorkerSummary& worker = workers[stats.worker()];
      worker.states.insert(StateName(stats.state()));
      if (worker.address.empty()) worker.address = Printable(stats.address(), kCellBytes);
      worker.first_iteration = std::min(worker.first_iteration, stats.iteration());
      worker.last_iteration = std::max(worker.last_iteration, stats.iteration());
      if (stats.state() != WorkerStats::NEVER_JOINED) {
        ++worker.shards;
        worker.sharing += stats.shared_memory();
        worker.last_seen_seconds_ago =
            std::min(worker.last_seen_seconds_ago, stats.last_seen_seconds_ago());
      }
      worker.pushes += stats.pushes();
      worker.repeated_pushes += stats.repeated_pushes();
      worker.skipped_pushes += stats.skipped_pushes();
      worker.limited_pushes += stats.limited_pushes();
      worker.counted_iterations = std::max(worker.counted_iterations, stats.counted_iterations());
      worker.dropped_iterations = std::max(worker.dropped_iterations, stats.dropped_iterations());
      worker.bytes_in += stats.bytes_in();
      worker.bytes_out += stats.bytes_out();
      if (stats.has_usage() && (worker.usage == nullptr ||
                                stats.usage_seconds_ago() < worker.usage->usage_seconds_ago())) {
        worker.usage = &stats;
      }
    }
  }
  return workers;
}

// Says how the worker's gradients and parameters travel.
std::string DataPath(const WorkerSummary& worker) {
  if (worker.shards == 0) return "";
  if (worker.sharing == 0) return "sent";
  if (worker.sharing == worker.shards) return "shared memory";
  return absl::StrCat("shared memory with ", worker.sharing, " of ", worker.shards);
}

std::string WorkerTable(const std::map<uint32_t, WorkerSummary>& workers) {
  const bool any_repeated =
      absl::c_any_of(workers, [](const auto& worker) { return worker.second.repeated_pushes > 0; });
  const bool any_skipped =
      absl::c_any_of(workers, [](const auto& worker) { return worker.second.skipped_pushes > 0; });
  const bool any_limited =
      absl::c_any_of(workers, [](const auto& worker) { return worker.second.limited_pushes > 0; });
  const bool has_quorum = absl::c_any_of(workers, [](const auto& worker) {
    return worker.second.counted_iterations + worker.second.dropped_iterations > 0;
  });
  // "in" and "out" are seen from the shards, as above: gradients are "in".
  std::vector<std::string> headings = {">worker",    "state",      "address", "data",
                                       ">iteration", ">last seen", ">pushes"};
  if (any_repeated) headings.push_back(">repeated");
  if (any_skipped) headings.push_back(">skipped");
  if (any_limited) headings.push_back(">limited");
  if (has_quorum) headings.insert(headings.end(), {">gradients counted", ">dropped"});
  headings.insert(headings.end(), {">in", ">out"});
  Table table(headings);
  for (const auto& [rank, worker] : workers) {
    std::string iteration = absl::StrCat(worker.first_iteration);
    if (worker.last_iteration != worker.first_iteration) {
      absl::StrAppend(&iteration, "-", worker.last_iteration);
    }
    const bool seen = worker.last_seen_seconds_ago < std::numeric_limits<double>::infinity();
    std::vector<std::string> row = {
        absl::StrCat(rank),
        absl::StrJoin(worker.states, ", "),
        worker.address,
        DataPath(worker),
        iteration,
        seen ? absl::StrCat(FormatSeconds(worker.last_seen_seconds_ago), " ago") : "",
        FormatCount(worker.pushes)};
    if (any_repeated) row.push_back(FormatCount(worker.repeated_pushes));
    if (any_skipped) row.push_back(FormatCount(worker.skipped_pushes));
    if (any_limited) row.push_back(FormatCount(worker.limited_pushes));
    if (has_quorum) {
      row.insert(row.end(),
                 {FormatCount(worker.counted_iterations), FormatCount(worker.dropped_iterations)});
    }
    row.insert(row.end(), {FormatBytes(worker.bytes_in), FormatBytes(worker.bytes_out)});
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

std::string UsageTable(const std::map<uint32_t, WorkerSummary>& workers) {
  std::vector<ReportedUsage> usages;
  for (const auto& [rank, worker] : workers) {
    ReportedUsage usage = {.worker = rank};
    if (worker.usage != nullptr) {
      usage.usage = &worker.usage->usage();
      usage.seconds_ago = worker.usage->usage_seconds_ago();
    }
    usages.push_back(usage);
  }
  return UsageText(usages);
}

template <typename Stats>
nlohmann::ordered_json EntriesOf(const char* name,
                                 const std::vector<ProcessReport<Stats>>& processes) {
  using Json = nlohmann::ordered_json;
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;

  Json entries = Json::array();
  for (size_t i = 0; i < processes.size(); ++i) {
    const ProcessReport<Stats>& process = processes[i];
    Json entry = {{name, i}, {"address", process.address}};
    std::string stats;
    if (!process.stats.ok()) {
      entry["error"] = std::string(process.stats.status().message());
    } else if (google::protobuf::util::MessageToJsonString(*process.stats, &stats, options).ok()) {
      entry["stats"] = Json::parse(stats, nullptr, /*allow_exceptions=*/false);
    } else {
      entry["error"] = "its answer cannot be written as JSON";
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

std::string StatsText(const ClusterReport& report, const ClusterReport* earlier) {
  if (!report.workers.empty()) return RingStatsText(report, earlier);
  const bool any = std::any_of(report.shards.begin(), report.shards.end(),
                               [](const ShardReport& shard) { return shard.stats.ok(); });
  if (!any) return ShardTable(report);
  const std::map<uint32_t, WorkerSummary> workers = Workers(report);
  return absl::StrCat(ShardTable(report), "\n", ExchangeTable(report, earlier), "\n",
                      TimeTable(report), Waits(report), LatestSet(report), RecoveryTable(report),
                      "\n", WorkerTable(workers), "\n", UsageTable(workers));
}

std::string StatsJson(const ClusterReport& report, bool one_line) {
  nlohmann::ordered_json json = {
      {"time", absl::FormatTime(absl::RFC3339_sec, report.time, absl::UTCTimeZone())}};
  if (report.workers.empty()) {
    json["shards"] = EntriesOf("shard", report.shards);
  } else {
    json["workers"] = EntriesOf("worker", report.workers);
  }
  return json.dump(one_line ? -1 : 2, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace evenshard
