#ifndef EVENSHARD_SERVER_UPDATE_NORM_LIMIT_H_
#define EVENSHARD_SERVER_UPDATE_NORM_LIMIT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "common/base/doubling_notice.h"
#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"
#include "server/session/worker_session.h"
#include "server/store/parameter_store.h"
#include "server/update/gradient.h"

namespace evenshard {

// Bounds what one worker can do to an update (update.max_norm). This is the norm bounding of Sun et
// al. 2019 (arXiv:1911.07963), for each chunk by itself, with a bound that follows the training:
//
//   n      the L2 norm of a worker's gradient of the chunk, divided by the gradient's weight
//   mean   of a worker: its first n, and mean + (n - mean) / 16 after each further one
//   bound  max_norm times the median of the means of the workers that take part; of an even number
//          of means, the lower of the two in the middle
//
// A gradient with n > bound is multiplied by bound / n, and n = bound goes into its worker's mean.
//
// Each worker has one mean, however often it pushes. So large gradients of up to half of the
// workers do not raise the bound above max_norm times what the others push, and a smaller part does
// not lower it below that. A worker that is alone is bounded by its own past.
//
// There is no bound until more than half of the workers that take part have a mean: the first
// gradients of a run are not limited. A gradient of zeros changes no mean, so that a parameter
// whose gradients begin late is not held back by the zeros before. A gradient that is not finite
// is left alone: it is refused elsewhere, or all workers are to see it (OptimizerConfig.MEAN).
//
// The means are a part of the chunk's state (ChunkClock::norms). Under SYNC and QUORUM they change
// when an iteration ends, so that the bound does not depend on the order in which pushes come.
// Buffers and assigned values are not limited. Thread-safe. Lock order: a chunk's lock, then this
// one's.
class NormLimit {
 public:
  // Gives every chunk of `store` its means if it has none. `config` must outlive this.
  // REQUIRES: the config has update.max_norm.
  NormLimit(const PlannedConfig& config, ParameterStore* store);

  // Sets the norm of a gradient that may be limited, unless it lies in memory that its worker
  // shares and could still change. Called without the chunk's lock, since this takes a while.
  void Measure(const Chunk& chunk, const WorkerSession& session, Gradient* gradient) const;

  // Scales a gradient that is about to be used down if its norm is above the bound, and counts it
  // then. One that was not measured is copied and measured first. Returns the norm that it has
  // afterwards, which is to be noted. `takes_part` says it of a rank.
  double Limit(const StoredChunk& chunk, absl::FunctionRef<bool(uint32_t)> takes_part,
               Gradient* gradient) ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

  // Takes the norm of a worker's gradient into the worker's mean. Without update.max_norm it is 0,
  // and nothing changes.
  static void Note(uint32_t rank, double norm, ChunkClock* clock);

  // Fills in how many gradients of chunks were limited.
  void FillStats(ShardStats* stats) const;

 private:
  bool IsLimited(const Chunk& chunk, const Gradient& gradient) const;
  // Returns nullopt if too few workers have a mean.
  std::optional<double> Bound(const ChunkClock& clock,
                              absl::FunctionRef<bool(uint32_t)> takes_part) const;
  void Count(const StoredChunk& chunk, const Gradient& gradient, double bound)
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

  // How many gradients of a worker were limited, and when the log says so.
  struct Limited {
    uint64_t gradients = 0;
    DoublingNotice<uint64_t> notice{1};
  };

  const PlannedConfig& config_;
  const double max_norm_;

  mutable absl::Mutex mutex_;
  std::vector<Limited> limited_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_NORM_LIMIT_H_
