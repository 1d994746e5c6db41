#include "tools/psctl/advice/advice_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;

// The table has the rows from the first on until one is so much slower, and no more than this.
constexpr size_t kShown = 16;

std::string ScheduleOf(const Choice& choice) {
  return ExchangeConfig::Schedule_Name(choice.candidate.config.exchange().schedule());
}

std::string ChoicesText(const std::vector<Choice>& choices, int chosen, double reference) {
  Table table({"", "", ">images/s", ">times", ">iteration", ">hosts", ">link bytes", "schedule",
               "limited by"});
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    const bool is_alone = choice.candidate.kind == Candidate::Kind::kAlone;
    if (i >= kShown && !is_alone && static_cast<int>(i) != chosen) continue;
    table.AddRow({static_cast<int>(i) == chosen ? "*" : "", NameOf(choice.candidate),
                  FormatRate(choice.images_per_second),
                  absl::StrFormat("%.2f", choice.images_per_second / reference),
                  FormatSeconds(choice.iteration_seconds), absl::StrCat(choice.candidate.hosts()),
                  choice.link_bytes > 0 ? FormatBytes(choice.link_bytes) : "-",
                  is_alone ? "-" : absl::AsciiStrToLower(ScheduleOf(choice)),
                  BottleneckName(choice.bottleneck)});
  }
  return table.ToString();
}

std::string More(const std::vector<Choice>& choices) {
  if (choices.size() <= kShown) return "";
  return absl::StrCat("All ", choices.size(), " with --format=json\n");
}

// Whether the config says no rate of its links, and its processes are on one host.
bool IsUnratedHost(const ClusterConfig& config) {
  if (config.has_worker_link_gbps()) return false;
  for (const ShardAddress& shard : config.shard()) {
    if (shard.has_link_gbps() || !absl::StartsWith(shard.address(), "unix:")) return false;
  }
  for (const std::string& address : config.ring().address()) {
    if (!absl::StartsWith(address, "unix:")) return false;
  }
  return true;
}

double SlowestWorkerLink(const ClusterConfig& config) {
  const std::vector<double> links = ConfiguredRates(config).worker_link;
  return *std::min_element(links.begin(), links.end());
}

// "links of 10 Gb/s", "links of 2 to 10 Gb/s".
std::string LinksText(const ClusterConfig& config) {
  const ClusterRates rates = ConfiguredRates(config);
  std::vector<double> links = rates.worker_link;
  links.insert(links.end(), rates.shard_link.begin(), rates.shard_link.end());
  const auto [least, most] = std::minmax_element(links.begin(), links.end());
  return absl::StrFormat("links of %s%g Gb/s%s",
                         *least < *most ? absl::StrFormat("%g to ", *least) : "", *most,
                         IsUnratedHost(config) ? " assumed though all are on one host" : "");
}

Json ChoiceJson(const Choice& choice) {
  Json json = {{"name", choice.candidate.name}};
  json["difference"] =
      choice.candidate.difference.empty() ? Json() : Json(choice.candidate.difference);
  if (!choice.refused.empty()) {
    json["refused"] = choice.refused;
    return json;
  }
  json["images_per_second"] = choice.images_per_second;
  json["iteration_seconds"] = choice.iteration_seconds;
  json["hosts"] = choice.candidate.hosts();
  json["link_bytes_each_way"] = choice.link_bytes;
  json["schedule"] = ScheduleOf(choice);
  json["connections"] = choice.candidate.config.limits().connections();
  json["limited_by"] = BottleneckName(choice.bottleneck);
  return json;
}

Json ChoicesJson(const std::vector<Choice>& choices) {
  Json json = Json::array();
  for (const Choice& choice : choices) json.push_back(ChoiceJson(choice));
  return json;
}

}  // namespace

std::string ClusterText(const AdviceCluster& cluster) {
  const int workers = cluster.config.workers();
  return absl::StrFormat("%s, %d worker%s, %s, batch %d, %s, %s", cluster.name, workers,
                         workers == 1 ? "" : "s", PredictedDevice(cluster.config),
                         cluster.config.training().batch_size(), LinksText(cluster.config),
                         cluster.latency_seconds > 0
                             ? FormatSeconds(cluster.latency_seconds) + " a message"
                             : "no latency");
}

std::string AdviceText(const AdviceCluster& cluster, const Advice& advice) {
  const double reference = advice.same[advice.chosen].images_per_second;
  std::string text =
      absl::StrCat(ClusterText(cluster), "\n\n", ChoicesText(advice.same, advice.chosen, reference),
                   More(advice.same));
  if (!advice.changed.empty()) {
    absl::StrAppend(&text, "\nWhat computes something else:\n",
                    ChoicesText(advice.changed, -1, reference), More(advice.changed));
  }
  if (!advice.refused.empty()) {
    absl::StrAppend(&text, "\nNot possible with this config:\n");
    for (const Choice& choice : advice.refused) {
      absl::StrAppend(&text, "  ", NameOf(choice.candidate), ": ", choice.refused, "\n");
    }
  }
  return absl::StrCat(text, "\n", advice.sentence, "\n");
}

std::string AdviceJson(const AdviceCluster& cluster, const Advice& advice) {
  const Json json = {{"cluster", cluster.name},
                     {"workers", cluster.config.workers()},
                     {"server_hosts", cluster.server_hosts},
                     {"device", PredictedDevice(cluster.config)},
                     {"batch_size", cluster.config.training().batch_size()},
                     {"worker_link_gbps", SlowestWorkerLink(cluster.config)},
                     {"latency_seconds", cluster.latency_seconds},
                     {"advice", advice.sentence},
                     {"chosen", advice.chosen},
                     {"same", ChoicesJson(advice.same)},
                     {"changed", ChoicesJson(advice.changed)},
                     {"refused", ChoicesJson(advice.refused)}};
  // Names come from the command line. Bytes that are not UTF-8 are replaced; otherwise dump() would
  // throw.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evenshard
