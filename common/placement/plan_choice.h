#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_CHOICE_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/placement/model/model.h"
#include "common/placement/plan/plan.h"
#include "proto/config.pb.h"

namespace evenshard {

// A placement that AUTO has weighed.
struct PlanAlternative {
  // "STRIPED", or "MEMORY_BASED by rates" if the shards' rates decide how much each gets.
  std::string name;
  double seconds = 0;   // the predicted time of an iteration
  std::string refused;  // why there is no such plan; empty if there is one
};

// The plan of a run, and why it is this one.
struct PlanChoice {
  Plan plan;
  Partition partition;  // the scheme and placement of the plan; never AUTO
  int64_t chunk_bytes = 0;
  // Why chunks have this size, such as "256 chunks for each of 4 shards".
  std::string chunk_bytes_reason;
  // AUTO: all that were weighed, in a fixed order. Empty for other schemes.
  std::vector<PlanAlternative> alternatives;
  int chosen = 0;  // AUTO: the index of the plan's alternative
};

// Makes the plan of a run. Under AUTO it simulates an iteration with each scheme, cut by the
// shards' rates and also evenly where these differ, and takes the fastest. Of several within 0.5 %
// it takes the first, STRIPED before others. It goes by the model, the shards' and workers' rates,
// the device and its batch, the schedule, the update policy and the encodings. The result is the
// same in every process, whatever differs between them otherwise.
//
// REQUIRES: the config has been checked, and its defaults are set except those that follow from the
// chunk size. Errors: those of Plan::Create; under AUTO, of STRIPED's if no scheme has a plan.
absl::StatusOr<PlanChoice> ChoosePlan(const ClusterConfig& config, const Model& model);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_CHOICE_H_
