#ifndef PS_TOOLS_PSCTL_PLAN_REPORT_H_
#define PS_TOOLS_PSCTL_PLAN_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/config/config.h"

namespace ps {

// What a plan asks of one shard.
struct ShardLoad {
  int64_t parameters = 0;
  int64_t bytes = 0;
  double share = 0;  // of the model
  // Of gradients in and parameters out, for all workers together, as encoded; and the larger.
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  int64_t bytes_each_way = 0;
  double gbps = 0;  // the slower of its link and server in the config; 0: not given
  // "conv1_1 .. conv5_3", "fc6/weight[0:19,874,696)": whole layers by name, three and
  // more in a row as a range; whole tensors; element ranges.
  std::vector<std::string> holds;
  std::string largest_layer;       // the layer with the most of its parameters
  double largest_layer_share = 0;  // of the shard
};

// What a plan is, and what it predicts for an iteration, before anything runs.
struct PlanReport {
  std::string scheme;  // "layer-based, round_robin", "memory-based", "auto"
  std::vector<ShardLoad> shards;
  int bottleneck = 0;            // the shard with the most parameters for its rate
  double ratio_to_balanced = 0;  // its parameters to those in a division by rates
  int64_t worker_bytes = 0;      // each way, of every worker: the whole model
  // The least that passes through the busiest link in each direction: a worker's, or that
  // of the shard with the most parameters, which moves them for every worker.
  int64_t busiest_link_bytes = 0;
};

PlanReport MakePlanReport(const Config& config);

// The plan of one config, whose file is `name`; `gbps` is the rate of a link, in
// 10^9 bits a second, for the least time of an iteration: of every worker, and of the shards
// where the config gives none.
std::string PlanText(const std::string& name, const Config& config, double gbps);

// Several plans next to each other, shorter. `names` and `configs` go together.
std::string PlanComparison(absl::Span<const std::string> names, absl::Span<const Config> configs,
                           double gbps);

// {"plans": [...]} with everything in PlanReport and every slice.
std::string PlanJson(absl::Span<const std::string> names, absl::Span<const Config> configs,
                     double gbps);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_PLAN_REPORT_H_
