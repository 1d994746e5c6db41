#ifndef PS_TOOLS_PSCTL_PLAN_REPORT_H_
#define PS_TOOLS_PSCTL_PLAN_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/config/config.h"

namespace ps {

// The share of a plan that one shard has to carry.
struct ShardLoad {
  int64_t parameters = 0;
  int64_t bytes = 0;
  double share = 0;  // of the model
  // The encoded bytes of an iteration for all workers together.
  int64_t bytes_in = 0;        // gradients
  int64_t bytes_out = 0;       // parameters
  int64_t bytes_each_way = 0;  // the larger of the two
  double gbps = 0;             // the slower of its link and server in the config; 0: not given
  // The layers, tensors and element ranges on the shard: "conv1_1 .. conv5_3" for three or more
  // whole layers in a row, "fc6/weight[0:19,874,696)" for a part of a tensor.
  std::vector<std::string> holds;
  std::string largest_layer;       // the layer with the most of its parameters
  double largest_layer_share = 0;  // of the shard
};

// A plan and what it predicts for an iteration, before anything runs.
struct PlanReport {
  std::string scheme;  // "layer-based, round_robin", "memory-based", "striped", "auto"
  std::vector<ShardLoad> shards;
  int bottleneck = 0;            // the shard with the most parameters for its rate
  double ratio_to_balanced = 0;  // its parameters over those in proportion to its rate
  int64_t worker_bytes = 0;      // what each worker moves each way: the whole model
  // The bytes that pass through the busiest link each way. It is a worker's link or that of the
  // shard with the most parameters, which moves them for every worker.
  int64_t busiest_link_bytes = 0;
};

PlanReport MakePlanReport(const Config& config);

// Formats the plan of one config. `name` is the config's file. `gbps` (10^9 bits per second) is the
// rate of the workers' links, and of the shards' if the config gives none; it predicts the least
// time of an iteration.
std::string PlanText(const std::string& name, const Config& config, double gbps);

// Formats several plans side by side, in a shorter form. `names` are the files of `configs`.
std::string PlanComparison(absl::Span<const std::string> names, absl::Span<const Config> configs,
                           double gbps);

// Returns {"plans": [...]} with all of each PlanReport and every slice.
std::string PlanJson(absl::Span<const std::string> names, absl::Span<const Config> configs,
                     double gbps);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_PLAN_REPORT_H_
