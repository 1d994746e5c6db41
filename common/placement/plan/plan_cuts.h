#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_PLAN_CUTS_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_PLAN_CUTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "common/placement/plan/plan.h"
#include "proto/config.pb.h"

namespace evenshard {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Rounds a number of elements up to a multiple of kAlignment.
inline int64_t RoundUp(int64_t n) { return CeilDiv(n, kAlignment) * kAlignment; }

// Returns the largest number of shards for which each of them can own something.
int64_t MaxShards(const Model& model, const Partition& partition);

// Cuts the model into slices, in model order and without `shard_offset`, as Plan::Create describes.
// `chunk_size` is the number of elements in a chunk. With unequal rates a slow shard may get
// nothing. The result is the same on every machine.
// REQUIRES: the scheme is LAYER_BASED, MEMORY_BASED or STRIPED; `shards` is from 1 to MaxShards;
// `rates` is empty or has a rate above 0 for each shard.
std::vector<Slice> CutModel(const Model& model, const Partition& partition, int shards,
                            int64_t chunk_size, absl::Span<const double> rates);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_PLAN_CUTS_H_
