#ifndef PS_SERVER_UPDATE_POLICY_H_
#define PS_SERVER_UPDATE_POLICY_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/config.h"
#include "server/gradient.h"
#include "server/membership.h"
#include "server/parameter_store.h"
#include "server/shard_counters.h"

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
// it without counting it again.
class UpdatePolicy {
 public:
  // The config's policy over the chunks of `store`. All arguments must outlive it.
  static std::unique_ptr<UpdatePolicy> Create(const Config& config, ParameterStore* store,
                                              ShardCounters* counters, const Clock* clock);
  virtual ~UpdatePolicy() = default;

  // Takes a checked gradient for store->chunks()[index]. `sink` gets one Reply,
  // during this call or from the later push that completes the update.
  // Errors: FAILED_PRECONDITION for an iteration that this chunk cannot be at.
  virtual absl::Status Push(int index, Gradient gradient, std::shared_ptr<ReplySink> sink) = 0;

  // Drops what waits for other workers: the run has failed, and nobody is answered any more.
  virtual void Abandon() = 0;

  // How long the shard should not read on from `worker`, because it is ahead of others that the
  // update needs; zero: it may. To be asked again after that time.
  virtual absl::Duration PushWait(uint32_t worker) const = 0;

  // Whether a reply may borrow the parameters' memory: no update of a chunk can come
  // before every worker has received the reply to its last push of that chunk.
  virtual bool RepliesMayBorrow() const = 0;

  // OK, or DEADLINE_EXCEEDED naming a chunk that began to wait for some worker before
  // `since`, or that waits for one that has left, and the workers that it waits for.
  virtual absl::Status CheckOverdue(absl::Time since, const Membership& membership) const = 0;
};

}  // namespace ps

#endif  // PS_SERVER_UPDATE_POLICY_H_
