#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_FRAGMENTS_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_FRAGMENTS_H_

#include <vector>

#include "common/placement/model/model.h"

namespace evenshard {

// The fragments of a model that workers with local steps exchange one after another (Streaming
// DiLoCo, Douillard et al. 2025, arXiv:2501.18512). Returns the layers of each, in model order. A
// layer goes whole into the fragment that has the fewest elements, the largest layers first, so
// that fragments are about equal where no layer is larger than its share. Layers without tensors
// are in none. Fragments may be empty if there are more of them than layers.
std::vector<std::vector<int>> FragmentsOf(const Model& model, int fragments);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_FRAGMENTS_H_
