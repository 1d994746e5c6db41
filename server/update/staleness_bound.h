#ifndef EVENSHARD_SERVER_UPDATE_STALENESS_BOUND_H_
#define EVENSHARD_SERVER_UPDATE_STALENESS_BOUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace evenshard {

// When a worker may go on under SSP, stale-synchronous parallel (Ho et al. 2013). A worker's clock
// at a chunk is the exchange after the latest one that it has pushed. A worker that has pushed
// exchange c gets its reply, with which it begins c + 1, once the clock of every worker that takes
// part is at least c + 1 - staleness. So what it reads has all updates of exchanges up to
// (c + 1) - staleness - 1, and its own. As every chunk keeps to that by itself, it holds over all
// shards.
//
// All workers take part from the beginning. One that leaves does not, and nor does one that is lost
// unless the run waits for it. When it joins again, it begins at the least clock of the others.
// Thread-safe. The clocks are those of a chunk whose lock is held, by rank
// (ChunkClock::next_iteration).
class StalenessBound {
 public:
  using Clocks = std::vector<uint64_t>;

  StalenessBound(uint64_t staleness, int workers) : staleness_(staleness), members_(workers) {}

  // Whether the reply to a push of `exchange` is due.
  bool MayGoOn(uint64_t exchange, const Clocks& clocks) const;
  // The ranks that it waits for.
  std::vector<uint32_t> Missing(uint64_t exchange, const Clocks& clocks) const;

  // The least clock of the workers that take part, or none if none does. Without `rank`.
  std::optional<uint64_t> LeastOfOthers(uint32_t rank, const Clocks& clocks) const;

  // Whether a process that joins comes back to a run that went on without the rank.
  bool ComesBack(uint32_t rank, uint64_t incarnation) const;
  // The rank takes part. One that comes back pushes nothing before `from`.
  void Join(uint32_t rank, uint64_t incarnation, uint64_t from);
  // The rank takes no part any more, unless another process has joined. Returns whether it did.
  bool Leave(uint32_t rank, uint64_t incarnation);
  // Those of `ranks` take no part until they join. Returns whether one did before.
  bool Leave(const std::vector<uint32_t>& ranks);

 private:
  struct Member {
    bool takes_part = true;
    uint64_t incarnation = 0;  // the latest that joined here; 0: none has
    uint64_t from = 0;
  };

  bool IsBehind(uint32_t rank, uint64_t clock, const Clocks& clocks) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const uint64_t staleness_;
  mutable absl::Mutex mutex_;                            // acquired after a chunk's
  std::vector<Member> members_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_STALENESS_BOUND_H_
