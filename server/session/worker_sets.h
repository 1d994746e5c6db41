#ifndef EVENSHARD_SERVER_SESSION_WORKER_SETS_H_
#define EVENSHARD_SERVER_SESSION_WORKER_SETS_H_

#include <cstdint>
#include <vector>

#include "proto/view.pb.h"

namespace evenshard {

// Which workers count at which iteration, by a view's list of worker sets. Immutable.
class WorkerSets {
 public:
  // The worker set of a run without views: all workers, always.
  explicit WorkerSets(int workers);
  // REQUIRES: `view` has a worker set that begins at iteration 0, or none, which stands for all
  // workers.
  WorkerSets(const View& view, int workers);

  // The ranks that count at an iteration, in ascending order.
  const std::vector<uint32_t>& At(uint64_t iteration) const { return EntryAt(iteration).ranks; }
  bool Contains(uint32_t rank, uint64_t iteration) const {
    return EntryAt(iteration).Contains(rank);
  }
  // Whether the update of an iteration waits for the rank's push. In the last iteration of a rank
  // that leaves the worker set, a push that has come counts, and no update waits for one that has
  // not.
  bool WaitsFor(uint32_t rank, uint64_t iteration) const {
    return Contains(rank, iteration) && Contains(rank, iteration + 1);
  }
  // The number of ranks for which WaitsFor is true.
  int Waited(uint64_t iteration) const;
  // Those ranks, in ascending order.
  std::vector<uint32_t> WaitedRanks(uint64_t iteration) const;

 private:
  struct Entry {
    uint64_t from_iteration = 0;
    std::vector<uint32_t> ranks;
    std::vector<bool> contains;  // by rank, up to the largest

    bool Contains(uint32_t rank) const { return rank < contains.size() && contains[rank]; }
  };

  const Entry& EntryAt(uint64_t iteration) const;
  void Add(uint64_t from_iteration, std::vector<uint32_t> ranks);

  std::vector<Entry> entries_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_WORKER_SETS_H_
