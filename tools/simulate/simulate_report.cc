#include "tools/simulate/simulate_report.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/plan/plan.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

// The table shows this many shards; the JSON has all.
constexpr int kShardsShown = 16;

// Returns the fraction of the time in which a link that passed `bytes` was busy.
double Utilisation(double bytes, double rate, const SimulateResult& result) {
  return bytes / (rate * result.simulation.seconds());
}

double Efficiency(const SimulateResult& result) {
  return result.bound.iteration_seconds() / result.simulation.steady_seconds();
}

bool IsSequential(const SimulateResult& result) {
  return result.config->proto().exchange().schedule() == ExchangeConfig::SEQUENTIAL;
}

const std::string& LayerName(const SimulateResult& result) {
  return result.config->model().layers()[result.bound.term.layer].name;
}

const char* TermKindName(BoundTerm::Kind kind) {
  switch (kind) {
    case BoundTerm::kCompute:
      return "COMPUTE";
    case BoundTerm::kWorkerLink:
      return "WORKER_LINK";
    case BoundTerm::kShardIn:
      return "SHARD_IN";
    case BoundTerm::kShardProcessing:
      return "SHARD_PROCESSING";
    case BoundTerm::kShardOut:
      return "SHARD_OUT";
    case BoundTerm::kHostIn:
      return "HOST_IN";
    default:
      return "HOST_OUT";
  }
}

// Returns what decides the bound: "0.1 s of computing, then 0.9 s to push ... into shard 2".
std::string TermText(const SimulateResult& result) {
  const BoundTerm& term = result.bound.term;
  const std::string compute = FormatSeconds(term.compute_seconds) + " of computing";
  if (term.kind == BoundTerm::kCompute) return absl::StrCat(compute, " by worker ", term.machine);
  const auto transfer = [&](absl::string_view verb, absl::string_view machine) {
    const bool all = term.layer + 1 == static_cast<int>(result.config->model().layers().size());
    return absl::StrCat(term.compute_seconds > 0 ? compute + ", then " : "",
                        FormatSeconds(term.transfer_seconds), " to ", verb, " ",
                        all ? "all layers" : "the layers up to " + LayerName(result), machine,
                        term.machine);
  };
  switch (term.kind) {
    case BoundTerm::kShardIn:
      return transfer("push", " into shard ");
    case BoundTerm::kShardProcessing:
      return transfer("take in", " at shard ");
    case BoundTerm::kShardOut:
      return transfer("pull", " out of shard ");
    case BoundTerm::kHostIn:
      return transfer("exchange", " into the host of worker and shard ");
    case BoundTerm::kHostOut:
      return transfer("exchange", " out of the host of worker and shard ");
    default:
      return transfer(IsSequential(result) ? "push and pull" : "exchange", " of worker ");
  }
}

// The rate of all workers together, without images that did not count.
double ImagesPerSecond(const SimulateResult& result) {
  const Simulation& simulation = result.simulation;
  const double batches = simulation.iteration_seconds.size() > 1
                             ? simulation.batches_per_second(0)
                             : simulation.batches[0] / simulation.iteration_seconds[0];
  return batches * result.config->proto().training().batch_size();
}

std::string SchemeName(const PlannedConfig& config) {
  return config.is_ring() ? "RING" : PartitionName(config.plan_choice().partition);
}

// "8 workers, 4 shards on their hosts", "8 workers".
std::string MachinesText(const PlannedConfig& config) {
  return absl::StrCat(config.workers(), " workers",
                      config.is_ring() ? "" : absl::StrCat(", ", config.shards(), " shards"),
                      config.proto().colocated() ? " on their hosts" : "");
}

int BusiestWorker(const SimulateResult& result) {
  const auto use = [&](int rank) {
    const LinkUse& link = result.simulation.worker_links[rank];
    return std::max(link.bytes_in, link.bytes_out) / result.rates.worker_link[rank];
  };
  int busiest = 0;
  for (int rank = 1; rank < result.config->workers(); ++rank) {
    if (use(rank) > use(busiest)) busiest = rank;
  }
  return busiest;
}

}  // namespace

std::string SimulateText(const SimulateResult& result) {
  const PlannedConfig& config = *result.config;
  const Simulation& simulation = result.simulation;
  const double iterations = simulation.iteration_seconds.size();
  std::string text = absl::StrFormat(
      "%s, %s, %s, %s: %s\n\n"
      "iteration   %s (bound %s, efficiency %s)\n"
      "bound by    %s\n"
      "parts       compute %s, push %s, pull %s%s\n"
      "each        ",
      config.model().name(), absl::AsciiStrToLower(SchemeName(config)),
      absl::AsciiStrToLower(ExchangeConfig::Schedule_Name(config.proto().exchange().schedule())),
      absl::AsciiStrToLower(Update::Policy_Name(config.proto().update().policy())),
      MachinesText(config), FormatSeconds(simulation.steady_seconds()),
      FormatSeconds(result.bound.iteration_seconds()), FormatPercent(Efficiency(result)),
      TermText(result), FormatSeconds(result.bound.compute_seconds),
      FormatSeconds(result.bound.push_seconds), FormatSeconds(result.bound.pull_seconds),
      IsSequential(result)
          ? absl::StrCat("; ", FormatSeconds(result.bound.in_step_seconds), " if in step")
          : "");
  for (const double seconds : simulation.iteration_seconds) {
    absl::StrAppend(&text, FormatSeconds(seconds), " ");
  }
  if (!simulation.is_steady()) absl::StrAppend(&text, "(not steady: try more --iterations)");
  if (result.bound.compute_seconds == 0) {
    absl::StrAppend(&text,
                    "\n\nThe exchange alone, without computing: ", NoComputeReason(config.proto()));
  }

  Table table({"link", ">in/iteration", ">out/iteration", ">in use", ">out use"});
  for (int shard = 0; shard < std::min(config.shards(), kShardsShown); ++shard) {
    const LinkUse& payload = simulation.shard_payload[shard];
    const LinkUse& link = simulation.shard_links[shard];
    const double rate = result.rates.shard_link[shard];
    table.AddRow({absl::StrCat("shard ", shard), FormatBytes(payload.bytes_in / iterations),
                  FormatBytes(payload.bytes_out / iterations),
                  FormatPercent(Utilisation(link.bytes_in, rate, result)),
                  FormatPercent(Utilisation(link.bytes_out, rate, result))});
  }
  const int rank = BusiestWorker(result);
  const LinkUse& link = simulation.worker_links[rank];
  const double rate = result.rates.worker_link[rank];
  table.AddRow({absl::StrCat("worker ", rank, " (the busiest)"), "", "",
                FormatPercent(Utilisation(link.bytes_in, rate, result)),
                FormatPercent(Utilisation(link.bytes_out, rate, result))});
  absl::StrAppend(&text, "\n\n", table.ToString());
  if (config.shards() > kShardsShown) {
    absl::StrAppend(&text, config.shards() - kShardsShown, " more shards with --format=json\n");
  }
  return text;
}

std::string SimulateJson(const SimulateResult& result) {
  using Json = nlohmann::ordered_json;
  const PlannedConfig& config = *result.config;
  const Simulation& simulation = result.simulation;
  const double iterations = simulation.iteration_seconds.size();
  const auto use = [&](Json* json, const LinkUse& link, double rate) {
    (*json)["payload_bytes_per_second"] = rate;
    (*json)["utilisation_in"] = Utilisation(link.bytes_in, rate, result);
    (*json)["utilisation_out"] = Utilisation(link.bytes_out, rate, result);
  };
  Json shards = Json::array();
  for (int shard = 0; shard < config.shards(); ++shard) {
    const LinkUse& payload = simulation.shard_payload[shard];
    Json json = {{"shard", shard},
                 {"bytes_in_per_iteration", payload.bytes_in / iterations},
                 {"bytes_out_per_iteration", payload.bytes_out / iterations}};
    use(&json, simulation.shard_links[shard], result.rates.shard_link[shard]);
    shards.push_back(std::move(json));
  }
  Json workers = Json::array();
  for (int rank = 0; rank < config.workers(); ++rank) {
    Json json = {{"rank", rank}};
    use(&json, simulation.worker_links[rank], result.rates.worker_link[rank]);
    workers.push_back(std::move(json));
  }
  const BoundTerm& term = result.bound.term;
  Json json = {{"model", config.model().name()},
               {"scheme", SchemeName(config)},
               {"colocated", config.proto().colocated()},
               {"schedule", ExchangeConfig::Schedule_Name(config.proto().exchange().schedule())},
               {"device", PredictedDevice(config.proto())},
               {"policy", Update::Policy_Name(config.proto().update().policy())},
               {"iteration_seconds", simulation.steady_seconds()},
               {"steady", simulation.is_steady()},
               {"each_iteration_seconds", simulation.iteration_seconds},
               {"bound_seconds", result.bound.iteration_seconds()},
               {"bound",
                {{"compute_seconds", result.bound.compute_seconds},
                 {"push_seconds", result.bound.push_seconds},
                 {"pull_seconds", result.bound.pull_seconds},
                 {"term",
                  {{"kind", TermKindName(term.kind)},
                   {"machine", term.machine},
                   {"layer", LayerName(result)},
                   {"compute_seconds", term.compute_seconds},
                   {"transfer_seconds", term.transfer_seconds}}}}},
               {"efficiency", Efficiency(result)},
               {"images_per_second", ImagesPerSecond(result)},
               {"shards", std::move(shards)},
               {"workers", std::move(workers)}};
  if (IsSequential(result)) json["in_step_seconds"] = result.bound.in_step_seconds;
  if (const Timeline& timeline = simulation.timeline; !timeline.shards.empty()) {
    json["timeline"] = {{"begin_seconds", timeline.begin_seconds},
                        {"bin_seconds", timeline.bin_seconds},
                        {"shards", Json::array()}};
    for (const Timeline::Link& link : timeline.shards) {
      json["timeline"]["shards"].push_back({{"in", link.in}, {"out", link.out}});
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evenshard
