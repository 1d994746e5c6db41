#ifndef EVENSHARD_COMMON_CHECKPOINT_CHUNK_CLOCK_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHUNK_CLOCK_H_

#include <cstdint>
#include <vector>

namespace evenshard {

// How far a chunk has come. With its parameters and the optimizer's state it is all that a shard
// needs to know of a chunk in order to go on with it.
struct ChunkClock {
  // The number of updates applied so far.
  uint64_t version = 0;
  // SYNC: the iteration whose gradients the chunk's next update needs. It differs from `version`
  // after iterations to which no worker contributed.
  uint64_t iteration = 0;
  // ASYNC: by rank, the iteration after the latest push that was counted. Empty under SYNC.
  std::vector<uint64_t> next_iteration = {};
  // SYNC: all workers pushed `absent` in the iteration before `iteration`. Not in checkpoints: no
  // push of before is answered by what begins from one.
  bool all_absent = false;

  friend bool operator==(const ChunkClock&, const ChunkClock&) = default;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHUNK_CLOCK_H_
