#ifndef EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_RING_FIXTURE_H_
#define EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_RING_FIXTURE_H_

#include <catch2/catch.hpp>

#include "common/placement/model/model.h"
#include "common/placement/plan/ring_plan.h"
#include "tests/common/placement/plan/model_fixture.h"

namespace evenshard {

// Tensors of many sizes, most of them with gaps behind.
inline Model SmallModel() {
  return ModelOf(R"(
    input { channels: 40 height: 1 width: 1 }
    layer { name: "fc1" linear { out_features: 50 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 30 } }
    layer { relu {} }
    layer { name: "fc3" linear { out_features: 10 } })");
}

inline RingPlan PlanOf(const Model& model, const RingPlan::Options& options) {
  absl::StatusOr<RingPlan> plan = RingPlan::Create(model, options);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *std::move(plan);
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_RING_FIXTURE_H_
