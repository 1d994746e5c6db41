#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PLANNED_RUN_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PLANNED_RUN_H_

#include "common/placement/model.h"
#include "common/placement/plan.h"
#include "proto/config.pb.h"

namespace evenshard {

// The input of a simulation. AUTO simulates alternatives before there is a plan, so this does not
// need a complete Config. REQUIRES: `config` is valid and has its defaults filled in, and `plan` is
// a plan of `model` for the config's number of shards. All three must outlive it.
struct PlannedRun {
  const ClusterConfig& config;
  const Model& model;
  const Plan& plan;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PLANNED_RUN_H_
