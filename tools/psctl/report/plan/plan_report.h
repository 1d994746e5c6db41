#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/placement/planned_config.h"
#include "tools/psctl/report/plan/encoding_cost.h"
#include "tools/psctl/report/plan/worst_stretch.h"

namespace evenshard {

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
  double link_gbps = 0;        // of its link, as the prediction assumes
  // The layers, tensors and element ranges on the shard: "conv1_1 .. conv5_3" for three or more
  // whole layers in a row, "fc6/weight[0:19,874,696)" for a part of a tensor.
  std::vector<std::string> holds;
  std::string largest_layer;       // the layer with the most of its parameters
  double largest_layer_share = 0;  // of the shard
};

// What travels in another encoding than FLOAT32, and what that takes.
struct EncodedTraffic {
  std::string what;      // "gradients", "parameters", "updates"
  std::string encoding;  // "INT8"
  EncodingCost cost;
};

// A plan and what it predicts for an iteration, before anything runs.
struct PlanReport {
  std::string scheme;     // as in the config: "LAYER_BASED GREEDY", "AUTO"
  std::string partition;  // of the plan; under AUTO the alternative chosen: "STRIPED by rates"
  std::vector<ShardLoad> shards;
  int bottleneck = 0;            // the shard with the most parameters for its rate
  double ratio_to_balanced = 0;  // its parameters over those in proportion to its rate
  // The bytes that pass through the busiest link each way. It is a worker's link, that of the shard
  // with the most parameters, which moves them for every worker, or one that both share.
  int64_t busiest_link_bytes = 0;
  Stretch worst_stretch;
  // The time of an iteration, as simulated, and the time that none can beat.
  double predicted_seconds = 0;
  double predicted_images_per_second = 0;  // of all workers
  double bound_seconds = 0;
  bool computes = false;        // whether they contain computing, or are of the exchange alone
  std::string device;           // which they assume
  double worker_link_gbps = 0;  // which they assume
  std::vector<EncodedTraffic> encoded;
};

// Makes the report of a config's plan. The prediction assumes the links of ConfiguredRates, with
// `link_gbps` (10^9 bits per second) in place of all of them if it is given.
PlanReport MakePlanReport(const PlannedConfig& config,
                          std::optional<double> link_gbps = std::nullopt);

// Returns the bytes of parameters or running statistics in memory.
int64_t FloatBytes(int64_t elements);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_REPORT_H_
