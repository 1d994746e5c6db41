#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_WORST_STRETCH_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_WORST_STRETCH_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "common/placement/plan/plan.h"

namespace evenshard {

// Several layers in a row, and the shard that has more of them than its share.
struct Stretch {
  int first_layer = 0;
  int last_layer = 0;
  int64_t elements = 0;
  int shard = 0;
  double ratio = 1;  // the shard's part of the elements over its share
};

// Returns the stretch of the model with the largest ratio, of all that have at least 1/S of the
// elements for S shards and would have less without their first or last layer. A shard's share is
// in proportion to its rate, or 1/S without rates.
//
// The backward pass computes the gradients of neighbouring layers at about the same time, and so
// they are pushed. What a shard holds of the whole model says how much it has to do in an
// iteration; what it holds of a stretch says how long the others are idle meanwhile. A stretch of
// 1/S is as much as one shard holds under an even plan: where one shard has all of it, the ratio is
// S, and where all have their share, it is 1. REQUIRES: `shard_rates` is empty or has a rate for
// each shard.
Stretch WorstStretch(const Model& model, const Plan& plan, absl::Span<const double> shard_rates);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_WORST_STRETCH_H_
