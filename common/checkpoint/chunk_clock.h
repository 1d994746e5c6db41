#ifndef EVENSHARD_COMMON_CHECKPOINT_CHUNK_CLOCK_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHUNK_CLOCK_H_

#include <compare>
#include <cstdint>
#include <vector>

namespace evenshard {

// How far a chunk has come. With its parameters and the optimizer's state it is all that a shard
// needs to know of a chunk in order to go on with it.
struct ChunkClock {
  // How often the parameters have changed: with each update, and where they were assigned.
  uint64_t version = 0;
  // SYNC: the exchange whose pushes the chunk needs next, which counts iterations of training and
  // assignments. It differs from `version` after exchanges to which no worker contributed.
  uint64_t iteration = 0;
  // ASYNC: by rank, the exchange after the latest push that was counted. Empty under SYNC.
  std::vector<uint64_t> next_iteration = {};
  // SYNC: all workers pushed `absent` in the exchange before `iteration`. A checkpoint does not
  // have it, because a shard that begins from one answers no push of an earlier exchange.
  bool all_absent = false;
  // How many exchanges were assignments, and no iterations of training. The initial parameters of
  // model.from_workers are the first of them.
  uint64_t assignments = 0;
  // Of those, the ones since the latest iteration of training, and those just before that one.
  // Under ASYNC only the initial parameters are assigned, and the latter is 0.
  uint64_t recent_assignments = 0;
  uint64_t former_assignments = 0;
  // The updates behind the optimizer's state, by which ADAM corrects its bias. Those that lie
  // before an assignment of that state came with it.
  uint64_t steps = 0;
  // With update.max_norm: by rank, the running mean of the norms of the worker's gradients, or 0
  // before there is one (server/update/norm_limit.h). Otherwise empty.
  std::vector<double> norms = {};

  // SYNC: how many iterations of training lie behind the chunk.
  uint64_t trained() const { return iteration - assignments; }
  // Counts the kind of an exchange that is over.
  void CountExchange(bool assigned) {
    if (assigned) {
      ++assignments;
      ++recent_assignments;
    } else {
      former_assignments = recent_assignments;
      recent_assignments = 0;
    }
  }
  // SYNC: returns where the chunk was before its latest exchange, but for its version and steps.
  ChunkClock Former() const {
    ChunkClock former = *this;
    if (iteration == 0) return former;
    --former.iteration;
    if (recent_assignments > 0) {
      --former.assignments;
      --former.recent_assignments;
    } else {
      former.recent_assignments = former_assignments;
    }
    return former;
  }

  friend auto operator<=>(const ChunkClock&, const ChunkClock&) = default;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHUNK_CLOCK_H_
