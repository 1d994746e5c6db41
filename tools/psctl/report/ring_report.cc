#include "tools/psctl/report/ring_report.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/placement/ring_plan.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kDefaultGbps = 10;
constexpr double kBytesPerGigabit = 125e6;
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

Traffic TrafficOf(const PlannedConfig& config, const RingPlan& plan, int rank) {
  const ExchangeConfig& exchange = config.proto().exchange();
  Traffic traffic;
  for (const RingSegment& segment : plan.segments()) {
    if (segment.part != rank) {
      traffic.sums += EncodedBytes(exchange.gradient_encoding(), segment.size);
    }
    if (segment.part != (rank + 1) % config.workers()) {
      traffic.parameters += EncodedBytes(exchange.parameter_encoding(), segment.size);
    }
  }
  return traffic;
}

// A ring that is planned, with what is said of it.
struct Report {
  RingPlan plan;
  std::vector<Traffic> sent;  // by rank
  int64_t most_sent = 0;
  double link_gbps = 0;
  // What the busiest link needs for its bytes each way, without overheads and computing.
  double bound_seconds = 0;
};

absl::StatusOr<Report> MakeReport(const PlannedConfig& config, std::optional<double> link_gbps) {
  ASSIGN_OR_RETURN(RingPlan plan,
                   RingPlan::Create(config.model(), RingPlan::OptionsOf(config.proto())));
  Report report = {.plan = std::move(plan)};
  for (int rank = 0; rank < config.workers(); ++rank) {
    report.sent.push_back(TrafficOf(config, report.plan, rank));
    report.most_sent = std::max(report.most_sent, report.sent.back().all());
  }
  const ClusterConfig& proto = config.proto();
  report.link_gbps =
      link_gbps.value_or(proto.has_worker_link_gbps() ? proto.worker_link_gbps() : kDefaultGbps);
  report.bound_seconds =
      static_cast<double>(report.most_sent) / (report.link_gbps * kBytesPerGigabit);
  return report;
}

}  // namespace

absl::StatusOr<std::string> RingPlanText(const std::string& name, const PlannedConfig& config,
                                         std::optional<double> link_gbps) {
  ASSIGN_OR_RETURN(const Report report, MakeReport(config, link_gbps));
  const RingPlan& plan = report.plan;
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
  absl::StrAppend(&text,
                  absl::StrFormat("\nEach link carries at most %s each way in an iteration, which "
                                  "takes %s at %g Gb/s.\n",
                                  FormatBytes(static_cast<double>(report.most_sent)),
                                  FormatSeconds(report.bound_seconds), report.link_gbps));
  return text;
}

absl::StatusOr<std::string> RingPlanJson(const std::string& name, const PlannedConfig& config,
                                         std::optional<double> link_gbps) {
  ASSIGN_OR_RETURN(const Report report, MakeReport(config, link_gbps));
  const RingPlan& plan = report.plan;
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
               {"bound_seconds", report.bound_seconds},
               {"ring", std::move(workers)},
               {"buckets", std::move(buckets)}};
  return Json{{"plans", Json::array({std::move(ring)})}}.dump(2, ' ', false,
                                                              Json::error_handler_t::replace) +
         "\n";
}

}  // namespace evenshard
