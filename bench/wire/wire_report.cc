#include "bench/wire/wire_report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "bench/quantile.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;

double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }

// Formats median, minimum and maximum as "3.21 (3.10-3.40)", in units of `unit`.
std::string Spread(const std::vector<double>& values, double unit) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return absl::StrFormat("%.2f (%.2f-%.2f)", Median(values) / unit, *low / unit, *high / unit);
}

Json SpreadJson(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {{"median", Median(values)}, {"min", *low}, {"max", *high}, {"windows", values.size()}};
}

// Returns the median of the ratios window by window, so that the machine's other load weighs
// equally on both sides.
double MedianRatio(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  for (size_t i = 0; i < over.size(); ++i) ratios.push_back(over[i] / under[i]);
  return Median(ratios);
}

double BytesRatio(const GoodputResult& result) {
  return static_cast<double>(result.ps.bytes_per_iteration) /
         static_cast<double>(result.raw.bytes_per_iteration);
}

const GoodputResult* Find(const WireResults& results, const std::string& transport, int workers,
                          int shards) {
  for (const GoodputResult& result : results.goodput) {
    const WireLayout& layout = result.layout;
    if (layout.transport == transport && layout.workers == workers && layout.shards == shards &&
        result.skipped.empty()) {
      return &result;
    }
  }
  return nullptr;
}

Json Headline(const WireResults& results) {
  Json headline = Json::object();
  const GoodputResult* tcp = Find(results, "tcp", 1, 1);
  const GoodputResult* local = Find(results, "unix", 1, 1);
  const GoodputResult* shared = Find(results, "shared", 1, 1);
  const GoodputResult* eight = Find(results, "tcp", 8, 1);
  const GoodputResult* one = tcp != nullptr ? tcp : local;
  if (one != nullptr) {
    headline["goodput_over_raw_socket"] = MedianRatio(one->ps.goodput, one->raw.goodput);
    headline["cpu_per_gb_over_raw_socket"] = MedianRatio(one->ps.cpu_per_gb, one->raw.cpu_per_gb);
    headline["bytes_over_raw_socket"] = BytesRatio(*one);
    headline["iteration_seconds_over_raw_socket"] =
        MedianRatio(one->ps.iteration_seconds, one->raw.iteration_seconds);
  }
  if (tcp != nullptr && local != nullptr) {
    headline["unix_over_tcp"] = MedianRatio(local->ps.goodput, tcp->ps.goodput);
  }
  if (tcp != nullptr && shared != nullptr) {
    headline["shared_over_tcp"] = MedianRatio(shared->ps.goodput, tcp->ps.goodput);
  }
  if (eight != nullptr) {
    headline["eight_workers_over_one"] =
        MedianRatio(eight->ps.goodput, results.one_beside_eight.goodput);
  }
  if (!results.latency.empty()) {
    const WireLatency& smallest = results.latency.front().latency;
    headline["smallest_push_pull_over_empty_call"] =
        smallest.p50_seconds / smallest.call_p50_seconds;
  }
  // The figures of memory are those of the measured layout with the most workers.
  const GoodputResult* most = nullptr;
  for (const GoodputResult& result : results.goodput) {
    if (!result.skipped.empty()) continue;
    if (most == nullptr || result.layout.workers > most->layout.workers) most = &result;
  }
  if (most != nullptr) {
    headline["shard_bytes_beyond_need"] = most->ps.memory.shard - most->shard_needs_bytes;
    headline["worker_bytes_beyond_buffers"] = most->ps.memory.worker;
    headline["exchange_bytes"] = most->ps.memory.exchange;
  }
  return headline;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown processor";
}

Json SamplesJson(const GoodputSamples& samples) {
  return {{"bytes_per_second", SpreadJson(samples.goodput)},
          {"cpu_seconds_per_gb", SpreadJson(samples.cpu_per_gb)},
          {"iteration_seconds", SpreadJson(samples.iteration_seconds)},
          {"bytes_per_iteration", samples.bytes_per_iteration},
          {"shard_resident_bytes", samples.memory.shard},
          {"worker_bytes_beyond_buffers", samples.memory.worker},
          {"exchange_bytes", samples.memory.exchange}};
}

}  // namespace

WireOrigin DescribeOrigin(int argc, const char* const* argv) {
  WireOrigin origin;
  utsname kernel = {};
  uname(&kernel);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  origin.machine = absl::StrFormat("%s, %d processors, %.1f GB", CpuModel(),
                                   sysconf(_SC_NPROCESSORS_ONLN), memory * 1e-9);
  origin.kernel = absl::StrCat(kernel.sysname, " ", kernel.release);
  double load[3] = {};
  getloadavg(load, 3);
  origin.load = absl::StrFormat("%.2f %.2f %.2f", load[0], load[1], load[2]);
  origin.date = absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone());
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  arguments.insert(arguments.begin(), "bazel run -c opt //bench:wire --");
  origin.command = absl::StrJoin(arguments, " ");
  return origin;
}

std::string WireTable(const WireOrigin& origin, const WireResults& results) {
  std::string text = absl::StrCat("machine  ", origin.machine, "\nkernel   ", origin.kernel,
                                  "\nload     ", origin.load, " before the start\ndate     ",
                                  origin.date, "\ncommand  ", origin.command, "\n");

  absl::StrAppend(&text,
                  "\nPush-pull of all parameters: GB/s of gradients in and parameters out, and CPU "
                  "seconds per GB;\nmedian (smallest-largest window), ps and raw sockets in turn; "
                  "the ratio window by window\n");
  constexpr char kRow[] = "%-6s %2s x %-2s  %-19s %-19s %5s   %-17s %-17s %5s\n";
  absl::StrAppendFormat(&text, kRow, "", "W", "S", "ps GB/s", "raw GB/s", "ratio", "ps CPU s/GB",
                        "raw CPU s/GB", "ratio");
  for (const GoodputResult& result : results.goodput) {
    const WireLayout& layout = result.layout;
    if (!result.skipped.empty()) {
      absl::StrAppendFormat(&text, "%-6s %2d x %-2d  skipped: %s\n", layout.transport,
                            layout.workers, layout.shards, result.skipped);
      continue;
    }
    absl::StrAppendFormat(
        &text, kRow, layout.transport, absl::StrCat(layout.workers), absl::StrCat(layout.shards),
        Spread(result.ps.goodput, 1e9), Spread(result.raw.goodput, 1e9),
        absl::StrFormat("%.2f", MedianRatio(result.ps.goodput, result.raw.goodput)),
        Spread(result.ps.cpu_per_gb, 1), Spread(result.raw.cpu_per_gb, 1),
        absl::StrFormat("%.2f", MedianRatio(result.ps.cpu_per_gb, result.raw.cpu_per_gb)));
  }

  absl::StrAppend(
      &text,
      "\nAn iteration: MB (10^6 bytes) moved by all workers, both directions as encoded, "
      "and seconds\n");
  constexpr char kIterationRow[] = "%-6s %2s x %-2s  %10s %10s %5s   %-19s %-19s %5s\n";
  absl::StrAppendFormat(&text, kIterationRow, "", "W", "S", "ps MB", "raw MB", "ratio", "ps s",
                        "raw s", "ratio");
  for (const GoodputResult& result : results.goodput) {
    if (!result.skipped.empty()) continue;
    const GoodputSamples& ps = result.ps;
    const GoodputSamples& raw = result.raw;
    absl::StrAppendFormat(
        &text, kIterationRow, result.layout.transport, absl::StrCat(result.layout.workers),
        absl::StrCat(result.layout.shards), absl::StrFormat("%.1f", ps.bytes_per_iteration * 1e-6),
        absl::StrFormat("%.1f", raw.bytes_per_iteration * 1e-6),
        absl::StrFormat("%.2f", BytesRatio(result)), Spread(ps.iteration_seconds, 1),
        Spread(raw.iteration_seconds, 1),
        absl::StrFormat("%.2f", MedianRatio(ps.iteration_seconds, raw.iteration_seconds)));
  }

  absl::StrAppend(
      &text,
      "\nResident memory in MB (10^6 bytes): the largest shard, what its parameters, "
      "sums, optimizer state\nand shared memory need; the largest worker beyond its two "
      "buffers, and what connecting and\nexchanging added\n");
  constexpr char kMemoryRow[] = "%-6s %2s x %-2s  %10s %10s %10s %10s %10s\n";
  absl::StrAppendFormat(&text, kMemoryRow, "", "W", "S", "shard", "needs", "beyond", "worker",
                        "exchange");
  for (const GoodputResult& result : results.goodput) {
    if (!result.skipped.empty()) continue;
    const auto megabytes = [](int64_t bytes) { return absl::StrFormat("%.1f", bytes * 1e-6); };
    const WireMemory& memory = result.ps.memory;
    absl::StrAppendFormat(&text, kMemoryRow, result.layout.transport,
                          absl::StrCat(result.layout.workers), absl::StrCat(result.layout.shards),
                          megabytes(memory.shard), megabytes(result.shard_needs_bytes),
                          megabytes(memory.shard - result.shard_needs_bytes),
                          megabytes(memory.worker), megabytes(memory.exchange));
  }

  absl::StrAppend(&text, "\nLatency in microseconds, one worker and one shard\n");
  constexpr char kLatencyRow[] = "%-6s %9s  %9s %9s   %10s %10s   %9s\n";
  absl::StrAppendFormat(&text, kLatencyRow, "", "bytes", "p50", "p99", "call p50", "call p99",
                        "p50 ratio");
  for (const LatencyResult& result : results.latency) {
    const WireLatency& latency = result.latency;
    const auto micros = [](double seconds) { return absl::StrFormat("%.1f", seconds * 1e6); };
    absl::StrAppendFormat(&text, kLatencyRow, result.transport, absl::StrCat(result.bytes),
                          micros(latency.p50_seconds), micros(latency.p99_seconds),
                          micros(latency.call_p50_seconds), micros(latency.call_p99_seconds),
                          absl::StrFormat("%.2f", latency.p50_seconds / latency.call_p50_seconds));
  }

  if (!results.candidates.empty()) {
    absl::StrAppend(&text,
                    "\nRaw sockets, what was tried (1 worker, 1 shard; buffer 0: the kernel's "
                    "choice)\n");
  }
  for (const RawCandidate& candidate : results.candidates) {
    absl::StrAppendFormat(&text, "%-6s chunk %8d  buffer %8d  %.2f GB/s\n", candidate.transport,
                          candidate.chunk_bytes, candidate.socket_buffer_bytes,
                          candidate.goodput * 1e-9);
  }

  absl::StrAppend(&text, "\n");
  const Json headline = Headline(results);
  for (const auto& [name, value] : headline.items()) {
    absl::StrAppendFormat(&text, "%-36s %s\n", name,
                          value.is_number_integer() ? absl::StrCat(value.get<int64_t>())
                                                    : absl::StrFormat("%.3f", value.get<double>()));
  }
  return text;
}

std::string WireJson(const WireOrigin& origin, const WireResults& results) {
  Json json;
  json["origin"] = {{"machine", origin.machine},
                    {"kernel", origin.kernel},
                    {"load", origin.load},
                    {"date", origin.date},
                    {"command", origin.command}};
  json["headline"] = Headline(results);
  json["goodput"] = Json::array();
  for (const GoodputResult& result : results.goodput) {
    Json entry = {{"transport", result.layout.transport},
                  {"workers", result.layout.workers},
                  {"shards", result.layout.shards}};
    if (!result.skipped.empty()) {
      entry["skipped"] = result.skipped;
    } else {
      entry["ps"] = SamplesJson(result.ps);
      entry["raw"] = SamplesJson(result.raw);
      entry["goodput_ratio"] = MedianRatio(result.ps.goodput, result.raw.goodput);
      entry["cpu_per_gb_ratio"] = MedianRatio(result.ps.cpu_per_gb, result.raw.cpu_per_gb);
      entry["shard_needs_bytes"] = result.shard_needs_bytes;
    }
    json["goodput"].push_back(entry);
  }
  json["latency"] = Json::array();
  for (const LatencyResult& result : results.latency) {
    const WireLatency& latency = result.latency;
    json["latency"].push_back({{"transport", result.transport},
                               {"bytes", result.bytes},
                               {"p50_seconds", latency.p50_seconds},
                               {"p99_seconds", latency.p99_seconds},
                               {"empty_call_p50_seconds", latency.call_p50_seconds},
                               {"empty_call_p99_seconds", latency.call_p99_seconds}});
  }
  json["raw_candidates"] = Json::array();
  for (const RawCandidate& candidate : results.candidates) {
    json["raw_candidates"].push_back({{"transport", candidate.transport},
                                      {"chunk_bytes", candidate.chunk_bytes},
                                      {"socket_buffer_bytes", candidate.socket_buffer_bytes},
                                      {"bytes_per_second", candidate.goodput}});
  }
  return json.dump(2) + "\n";
}

}  // namespace evenshard
