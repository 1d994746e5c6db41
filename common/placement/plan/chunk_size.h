#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_CHUNK_SIZE_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_CHUNK_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"

namespace evenshard {

struct ChunkSize {
  int64_t bytes = 0;   // a multiple of 64
  std::string reason;  // a phrase such as "256 chunks for each of 4 shards"
};

// Chooses limits.chunk_bytes for a config that does not give it. The result is the same on every
// machine.
//
// The first chunk is answered when all workers have pushed it over all their streams, so the way
// back is idle at first, and the way there in the end: an exchange takes longer than its bytes need
// by several chunks' time at a shard. So the shard with the smallest part should have at least 256
// chunks. No chunk need be larger than 640 KiB, which was measured as the best where shards have
// many (docs/performance.md). On the other hand a chunk takes the processors at both ends some time
// however small it is, so it must not pass a link faster than they can follow; it has at least
// 16 KiB.
//
// `shard_rates` are in 10^9 bits per second. Without them the parts are equal, and links are
// assumed to have 10. REQUIRES: `shards` > 0; `shard_rates` is empty or has a rate above 0 for
// each.
ChunkSize ChooseChunkSize(const Model& model, int shards, absl::Span<const double> shard_rates);

// The same for a ring of workers, where a chunk waits for no other worker's: a 64th of a worker's
// part, so that the steps round the ring overlap, and at most 1 MiB, as in gloo. It has at least
// 16 KiB.
ChunkSize ChooseRingChunkSize(const Model& model, int workers);

// Sets limits.chunk_bytes, and those limits that are not given and follow from it.
void SetChunkLimits(int64_t chunk_bytes, Limits* limits);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_CHUNK_SIZE_H_
