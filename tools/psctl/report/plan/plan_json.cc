#include "tools/psctl/report/plan/plan_json.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/wire/chunk_codec.h"
#include "nlohmann/json.hpp"
#include "tools/psctl/report/plan/plan_report.h"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;

Json AlternativesJson(const PlanChoice& choice) {
  Json json = Json::array();
  for (const PlanAlternative& alternative : choice.alternatives) {
    json.push_back({{"name", alternative.name}});
    if (alternative.refused.empty()) {
      json.back()["seconds"] = alternative.seconds;
    } else {
      json.back()["refused"] = alternative.refused;
    }
  }
  return json;
}

Json EncodedJson(const PlanReport& report) {
  Json json = Json::array();
  for (const EncodedTraffic& encoded : report.encoded) {
    json.push_back({{"what", encoded.what},
                    {"encoding", encoded.encoding},
                    {"bits", encoded.cost.bits},
                    {"encode_nanoseconds", encoded.cost.encode_nanoseconds},
                    {"decode_nanoseconds", encoded.cost.decode_nanoseconds},
                    {"pays_below_gbps", encoded.cost.pays_below_gbps}});
  }
  return json;
}

}  // namespace

std::string PlanJson(absl::Span<const std::string> names, absl::Span<const PlannedConfig> configs,
                     std::optional<double> link_gbps) {
  Json plans = Json::array();
  for (size_t i = 0; i < configs.size(); ++i) {
    const PlannedConfig& config = configs[i];
    const PlanReport report = MakePlanReport(config, link_gbps);
    Json shards = Json::array();
    for (int shard = 0; shard < config.shards(); ++shard) {
      const ShardLoad& load = report.shards[shard];
      Json slices = Json::array();
      for (const Slice& slice : config.plan().slices()) {
        if (slice.shard != shard) continue;
        slices.push_back({{"tensor", config.model().tensors()[slice.tensor].name},
                          {"begin", slice.begin},
                          {"size", slice.size}});
      }
      shards.push_back({{"shard", shard},
                        {"address", config.address(shard)},
                        {"gbps", load.gbps > 0 ? Json(load.gbps) : Json()},
                        {"link_gbps", load.link_gbps},
                        {"parameters", load.parameters},
                        {"bytes", load.bytes},
                        {"share", load.share},
                        {"bytes_in_per_iteration", load.bytes_in},
                        {"bytes_out_per_iteration", load.bytes_out},
                        {"slices", std::move(slices)}});
    }
    const PlanChoice& choice = config.plan_choice();
    const Stretch& stretch = report.worst_stretch;
    const std::vector<Layer>& layers = config.model().layers();
    plans.push_back({{"config", names[i]},
                     {"model", config.model().name()},
                     {"scheme", report.scheme},
                     {"partition", report.partition},
                     {"workers", config.workers()},
                     {"parameters", config.model().parameter_count()},
                     {"bytes", FloatBytes(config.model().element_count())},
                     {"chunks", config.plan().chunks().size()},
                     {"chunk_bytes", choice.chunk_bytes},
                     {"chunk_bytes_reason", choice.chunk_bytes_reason},
                     {"protocol_version", kProtocolVersion},
                     {"plan_version", kPlanVersion},
                     {"plan_fingerprint", absl::StrFormat("%016x", config.plan().fingerprint())},
                     {"config_fingerprint", absl::StrFormat("%016x", config.fingerprint())},
                     {"bottleneck_shard", report.bottleneck},
                     {"ratio_to_balanced", report.ratio_to_balanced},
                     {"busiest_link_bytes_each_way", report.busiest_link_bytes},
                     {"worst_stretch",
                      {{"first_layer", layers[stretch.first_layer].name},
                       {"last_layer", layers[stretch.last_layer].name},
                       {"bytes", FloatBytes(stretch.elements)},
                       {"shard", stretch.shard},
                       {"ratio", stretch.ratio}}},
                     {"encodings", EncodedJson(report)},
                     {"worker_link_gbps", report.worker_link_gbps},
                     {"device", report.device},
                     {"predicted_seconds", report.predicted_seconds},
                     {"bound_seconds", report.bound_seconds},
                     {"alternatives", AlternativesJson(choice)},
                     {"shards", std::move(shards)}});
  }
  // Names come from the config. Bytes that are not UTF-8 are replaced; otherwise dump() would
  // throw.
  return Json{{"plans", std::move(plans)}}.dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace evenshard
