#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PLANNED_RUN_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PLANNED_RUN_H_

#include "common/placement/model/model.h"
#include "common/placement/plan/plan.h"
#include "common/placement/plan/ring_plan.h"
#include "proto/config.pb.h"

namespace evenshard {

// The input of a simulation. AUTO simulates alternatives before there is a plan, so this does not
// need a complete Config. REQUIRES: `config` is valid and has its defaults filled in. `plan` is a
// plan of `model` for the config's number of shards, or in a ring `ring` is one for its workers.
// All must outlive it.
struct PlannedRun {
  const ClusterConfig& config;
  const Model& model;
  const Plan& plan;                // without chunks in a ring
  const RingPlan* ring = nullptr;  // null without a ring
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PLANNED_RUN_H_
