#include "tools/psctl/report/ring_report.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/simulator/bound.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/simulator.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "nlohmann/json.hpp"
#include "tools/psctl/report/plan/prediction_text.h"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBucketsShown = 24;

// "fc2 .. fc3", "fc6".
std::string LayersOf(const Model& model, const RingBucket& bucket) {
  const std::string& first = model.layers()[bucket.first_layer].name;
  const std::string& last = model.layers()[bucket.last_layer].name;
  return first == last ? first : absl::StrCat(first, " .. ", last);
}

// The encoded bytes that a worker sends in an iteration.
struct Traffic {
  int64_t sums = 0;
  int64_t parameters = 0;

  int64_t all() const { return sums + parameters; }
};

Traffic TrafficOf(const PlannedConfig& config, int rank) {
  const ExchangeConfig& exchange = config.proto().exchange();
  Traffic traffic;
  for (const RingSegment& segment : config.ring_plan().segments()) {
    if (segment.part != rank) {
      traffic.sums += EncodedBytes(exchange.gradient_encoding(), segment.size);
    }
    if (segment.part != (rank + 1) % config.workers()) {
      traffic.parameters += EncodedBytes(exchange.parameter_encoding(), segment.size);
    }
  }
  return traffic;
}

// The figures of a ring that are reported beside its plan.
struct Report {
  std::vector<Traffic> sent;  // by rank
  int64_t most_sent = 0;
  double link_gbps = 0;
  PredictedTime predicted;
};

Report MakeReport(const PlannedConfig& config, std::optional<double> link_gbps) {
  Report report;
  for (int rank = 0; rank < config.workers(); ++rank) {
    report.sent.push_back(TrafficOf(config, rank));
    report.most_sent = std::max(report.most_sent, report.sent.back().all());
  }
  ClusterRates rates = ConfiguredRates(config.proto(), link_gbps);
  report.link_gbps = rates.worker_link.front();  // a config has one rate for all workers
  ConvertLinks(Framing(), &rates);
  // The device has been checked with the config.
  const std::vector<LayerTime> times = *PredictedLayerTimes(config.model(), config.proto());
  const Bound bound = BoundOf(config.planned_run(), rates, times);
  report.predicted = {.seconds = Predict(config.planned_run(), rates, times).iteration_seconds,
                      .bound_seconds = bound.iteration_seconds(),
                      .computes = bound.compute_seconds > 0,
                      .device = PredictedDevice(config.proto()),
                      .links = absl::StrFormat("links of %g Gb/s", report.link_gbps)};
  return report;
}

}  // namespace

std::string RingPlanText(const std::string& name, const PlannedConfig& config,
                         std::optional<double> link_gbps) {
  const Report report = MakeReport(config, link_gbps);
  const RingPlan& plan = config.ring_plan();
  std::string text =
      absl::StrCat(name, "\n", config.model().name(), " in a ring of ", config.workers(),
                   " workers\n", FormatCount(config.model().parameter_count()), " parameters, ",
                   FormatBytes(static_cast<double>(config.model().element_count()) * sizeof(float)),
                   ", ", plan.buckets().size(), " buckets, ", FormatCount(plan.segments().size()),
                   " chunks\nchunks of at most ", FormatCount(config.plan_choice().chunk_bytes),
                   " B: ", config.plan_choice().chunk_bytes_reason, "\n\n");
  Table workers({">worker", ">part", ">sums out", ">parameters out"});
  for (int rank = 0; rank < config.workers(); ++rank) {
    workers.AddRow({absl::StrCat(rank),
                    FormatBytes(static_cast<double>(plan.part_size(rank)) * sizeof(float)),
                    FormatBytes(static_cast<double>(report.sent[rank].sums)),
                    FormatBytes(static_cast<double>(report.sent[rank].parameters))});
  }
  Table buckets({">bucket", ">size", "of"});
  for (size_t i = 0; i < std::min(plan.buckets().size(), kBucketsShown); ++i) {
    const RingBucket& bucket = plan.buckets()[i];
    buckets.AddRow({absl::StrCat(i), FormatBytes(static_cast<double>(bucket.size) * sizeof(float)),
                    LayersOf(config.model(), bucket)});
  }
  absl::StrAppend(&text, workers.ToString(), "\n", buckets.ToString());
  if (plan.buckets().size() > kBucketsShown) {
    absl::StrAppend(&text, plan.buckets().size() - kBucketsShown,
                    " more buckets with --format=json\n");
  }
  absl::StrAppend(&text, "\nbusiest link   ", FormatBytes(static_cast<double>(report.most_sent)),
                  " each way per iteration\n", PredictionText(config, report.predicted));
  return text;
}

std::string RingPlanJson(const std::string& name, const PlannedConfig& config,
                         std::optional<double> link_gbps) {
  const Report report = MakeReport(config, link_gbps);
  const RingPlan& plan = config.ring_plan();
  Json workers = Json::array();
  for (int rank = 0; rank < config.workers(); ++rank) {
    workers.push_back({{"worker", rank},
                       {"address", config.proto().ring().address(rank)},
                       {"part_bytes", plan.part_size(rank) * sizeof(float)},
                       {"sum_bytes_out_per_iteration", report.sent[rank].sums},
                       {"parameter_bytes_out_per_iteration", report.sent[rank].parameters}});
  }
  Json buckets = Json::array();
  for (const RingBucket& bucket : plan.buckets()) {
    buckets.push_back({{"begin", bucket.begin},
                       {"size", bucket.size},
                       {"first_layer", config.model().layers()[bucket.first_layer].name},
                       {"last_layer", config.model().layers()[bucket.last_layer].name},
                       {"chunks", bucket.segments}});
  }
  Json ring = {{"config", name},
               {"model", config.model().name()},
               {"topology", "RING"},
               {"workers", config.workers()},
               {"parameters", config.model().parameter_count()},
               {"chunks", plan.segments().size()},
               {"chunk_bytes", config.plan_choice().chunk_bytes},
               {"protocol_version", kProtocolVersion},
               {"ring_plan_version", kRingPlanVersion},
               {"plan_fingerprint", absl::StrFormat("%016x", plan.fingerprint())},
               {"config_fingerprint", absl::StrFormat("%016x", config.fingerprint())},
               {"busiest_link_bytes_each_way", report.most_sent},
               {"worker_link_gbps", report.link_gbps},
               {"device", report.predicted.device},
               {"predicted_seconds", report.predicted.seconds},
               {"bound_seconds", report.predicted.bound_seconds},
               {"ring", std::move(workers)},
               {"buckets", std::move(buckets)}};
  return Json{{"plans", Json::array({std::move(ring)})}}.dump(2, ' ', false,
                                                              Json::error_handler_t::replace) +
         "\n";
}

}  // namespace evenshard
