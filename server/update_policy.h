#ifndef PS_SERVER_UPDATE_POLICY_H_
#define PS_SERVER_UPDATE_POLICY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "server/gradient.h"
#include "server/parameter_store.h"
#include "server/shard_counters.h"
#include "server/worker_session.h"

namespace ps {

// Decides, chunk by chunk, when pushed gradients become an update and when the updated
// parameters go back. Thread-safe.
//
// SYNC, bulk synchronous (Valiant 1990): the gradients of all workers for one iteration
// are added up as they arrive (under `deterministic` in the order of ranks, early ones
// being held where they were received); the last one applies their mean and lets all
// replies go. A worker that flags `skip` counts as arrived but not in the mean.
//
// ASYNC (Dean et al. 2012, Downpour SGD): each gradient is applied at once and answered
// at once.
//
// Both recognise a push that they have counted before by (worker, iteration) and answer
// it without counting it again. Both count a push only while its session holds the rank.
class UpdatePolicy {
 public:
  // An update that some workers have pushed for and others have not.
  struct Pending {
    uint32_t chunk;  // its id
    uint64_t iteration;
    absl::Time since;               // of the first push
    std::vector<uint32_t> missing;  // the ranks that it waits for
  };

  // The most that an iteration may be ahead of the one that ASYNC expects. A worker that starts
  // again skips what its predecessor had not pushed everywhere, so gaps are short.
  static constexpr uint64_t kMaxGap = 1000;

  // The config's policy over the chunks of `store`. All arguments must outlive it.
  static std::unique_ptr<UpdatePolicy> Create(const Config& config, ParameterStore* store,
                                              ShardCounters* counters, const Clock* clock);
  virtual ~UpdatePolicy() = default;

  // Takes a checked gradient for store->chunks()[index] from `session`'s worker. `sink` gets one
  // Reply, during this call or from the later push that completes the update. Errors, with which
  // the push is not counted: FAILED_PRECONDITION for an iteration that this chunk cannot be at, or
  // where the session's rank has passed on; INVALID_ARGUMENT for a version that does not exist.
  // OUT_OF_RANGE where the update leaves float32's range, which the run cannot survive: where the
  // sum of the gradients does, it has changed nothing.
  virtual absl::Status Push(int index, WorkerSession& session, Gradient gradient,
                            std::shared_ptr<ReplySink> sink) = 0;

  // Drops what waits for other workers: the run has failed, and nobody is answered any more.
  virtual void Abandon() = 0;

  // How long the shard should not read on from `worker`, because it is ahead of others that the
  // update needs; zero: it may. To be asked again after that time.
  virtual absl::Duration PushWait(uint32_t worker) const = 0;

  // Whether a reply may borrow the parameters' memory: no update of a chunk can come
  // before every worker has received the reply to its last push of that chunk.
  virtual bool RepliesMayBorrow() const = 0;

  // The updates that wait for some worker.
  virtual std::vector<Pending> PendingUpdates() const = 0;
};

}  // namespace ps

#endif  // PS_SERVER_UPDATE_POLICY_H_
