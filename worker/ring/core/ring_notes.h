#ifndef EVENSHARD_WORKER_RING_CORE_RING_NOTES_H_
#define EVENSHARD_WORKER_RING_CORE_RING_NOTES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/ring.pb.h"

namespace evenshard {

// What the workers of a ring tell all others before an iteration, or in it: each one a note, which
// goes round. A note is the answer to those of the others with the same number, and nobody gives
// the next one without all of them, so that there are at most two numbers at a time. Thread-safe.
class RingNotes {
 public:
  explicit RingNotes(std::vector<int> ranks) : ranks_(std::move(ranks)) {}

  // Takes a worker's note. Errors: INVALID_ARGUMENT for one that cannot come.
  absl::Status Take(const RingNote& note);

  // Waits until all workers' notes with this number at this iteration have come, without a limit,
  // and returns them by rank. Calls `check` about every 50 ms, without a lock. Errors: what `check`
  // returns.
  absl::StatusOr<std::vector<RingNote>> Await(uint64_t iteration, uint32_t number,
                                              const std::function<absl::Status()>& check);

  // Whether a thread is in Await.
  bool awaits() const {
    absl::MutexLock lock(&mutex_);
    return awaits_;
  }
  // The workers whose notes have not come, in the order of the ring.
  std::vector<int> Missing(uint64_t iteration, uint32_t number) const;
  // A rank whose note for an iteration has come and was not awaited, or -1.
  int GivenFor(uint64_t iteration) const;

 private:
  using Point = std::pair<uint64_t, uint32_t>;  // iteration, number

  const std::vector<int> ranks_;
  mutable absl::Mutex mutex_;
  bool awaits_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Point, std::map<uint32_t, RingNote>> notes_ ABSL_GUARDED_BY(mutex_);  // by rank
};

// Returns the mean of what the notes bring, added in the order of ranks. Errors:
// FAILED_PRECONDITION if they are not of one place in the workers' programs.
absl::StatusOr<std::vector<double>> MeanOf(const std::vector<RingNote>& notes);

// Errors: FAILED_PRECONDITION, with the name of what is not the same in all notes
// (DifferingStateOf).
absl::Status CheckSameStates(const std::vector<RingNote>& notes);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_NOTES_H_
