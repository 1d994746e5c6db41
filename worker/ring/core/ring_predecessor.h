#ifndef EVENSHARD_WORKER_RING_CORE_RING_PREDECESSOR_H_
#define EVENSHARD_WORKER_RING_CORE_RING_PREDECESSOR_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "proto/ring.pb.h"

namespace evenshard {

// What a worker of a ring knows of its predecessor: which incarnation of it has joined, and how
// many of its streams have been opened and closed. Not thread-safe.
class RingPredecessor {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    const RingPlan* plan = nullptr;
    int rank = 0;             // of this worker
    int predecessor = 0;      // its rank
    uint64_t generation = 0;  // RingStart::generation
  };
  explicit RingPredecessor(const Options& options) : options_(options) {}

  // Errors: FAILED_PRECONDITION for a worker that is another one, or that differs in what it runs;
  // INVALID_ARGUMENT without an incarnation.
  absl::Status CheckJoin(const RingJoinRequest& join) const;
  // Takes up an incarnation of the predecessor, in place of one that has opened no stream. Errors:
  // ALREADY_EXISTS if another incarnation has opened streams. REQUIRES: CheckJoin.
  absl::Status TakeUp(uint64_t incarnation);
  // Errors: FAILED_PRECONDITION unless the worker is the one that has joined.
  absl::Status Check(uint32_t worker, uint64_t incarnation) const;

  // One of its streams opens. Errors: RESOURCE_EXHAUSTED if all have been opened. REQUIRES: Check.
  absl::Status Open();
  // It has closed one. Returns whether it was the last one.
  bool Close() { return ++closed_ == streams(); }
  bool has_opened_all() const { return opened_ == streams(); }

 private:
  size_t streams() const;  // that the predecessor opens

  const Options options_;
  uint64_t incarnation_ = 0;  // that has joined, or 0
  size_t opened_ = 0;         // streams of this incarnation so far
  size_t closed_ = 0;         // of those, by the predecessor
};

// Why the run ends, as a neighbour tells it. Never OK, and never without a sentence.
absl::Status NewsOf(const RingFailure& failure);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_PREDECESSOR_H_
