#ifndef PS_COMMON_MODEL_CHUNK_SIZE_H_
#define PS_COMMON_MODEL_CHUNK_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/model/model.h"

namespace ps {

struct ChunkSize {
  int64_t bytes = 0;   // a multiple of 64
  std::string reason;  // a phrase such as "64 chunks for each of 512 shards"
};

// Chooses limits.chunk_bytes for a config that does not give it. The result is the same on every
// machine.
//
// An exchange takes longer than its bytes need by about three chunks' time at a shard: the way back
// is idle at first, the way there in the end. So the shard with the smallest part should have at
// least 64 chunks. No chunk need be larger than 640 KiB, which was measured as the best where
// shards have many (docs/performance.md). On the other hand a chunk takes the processors at both
// ends some time however small it is. `connections` streams are handled side by side, so that a
// chunk must last as long on the link divided by `connections`; it has at least 16 KiB.
//
// `shard_rates` are in 10^9 bits per second. Without them the parts are equal, and links are taken
// for ones of 10. REQUIRES: `shards` > 0; `shard_rates` is empty or has a rate above 0 for each.
ChunkSize ChooseChunkSize(const Model& model, int shards, absl::Span<const double> shard_rates,
                          int connections);

}  // namespace ps

#endif  // PS_COMMON_MODEL_CHUNK_SIZE_H_
