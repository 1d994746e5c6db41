#ifndef EVENSHARD_SERVER_UPDATE_UPDATE_POLICY_H_
#define EVENSHARD_SERVER_UPDATE_UPDATE_POLICY_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "server/session/policy_view.h"
#include "server/session/worker_session.h"
#include "server/update/gradient.h"
#include "server/update/unconfirmed_replies.h"

namespace evenshard {

// Where a slot stands: see ProcessState.Position.
struct SlotPosition {
  uint64_t iteration = 0;
  uint64_t least_iteration = std::numeric_limits<uint64_t>::max();
  uint64_t assignments = 0;
};

// Decides, chunk by chunk, when pushed gradients become an update and when the updated parameters
// are sent back. Thread-safe.
//
// SYNC is bulk synchronous (Valiant 1990). The gradients of the worker set's workers for an
// iteration are added up as they arrive. The last one applies their mean and releases all replies.
// A worker that sets `skip` counts as arrived but not in the mean; one that sets `absent` counts in
// the mean with zeros, and if all do there is no update. With update.deterministic, gradients are
// added up in the order of ranks, and early ones are held where they were received.
//
// QUORUM (Chen et al. 2016) is SYNC whose updates wait for a quorum of the worker set, and count
// the gradients of who has pushed everything by then (Quorum). All gradients are held until the
// slots have agreed on that. A push that does not count is answered as dropped, whenever it comes.
// A worker that goes on elsewhere sets `onlooks` to be answered with the parameters after an
// iteration.
//
// ASYNC (Dean et al. 2012, Downpour SGD) applies and answers each gradient at once. SSP applies it
// at once, and answers when the worker is not too far ahead of the others (StalenessBound). What is
// said of ASYNC elsewhere holds for SSP too.
//
// All recognise a push that they have counted before by its worker and iteration, and answer it
// without counting it again. They count a push only while its session holds the rank and if it is
// of the present view.
class UpdatePolicy {
 public:
  // An update that some workers have pushed for and others have not or, under SSP, a push whose
  // reply waits for others.
  struct Pending {
    uint32_t chunk;                 // its id
    uint64_t iteration;             // of training
    absl::Time since;               // when the first push came
    std::vector<uint32_t> missing;  // the ranks that are waited for
  };

  // How far an iteration may be ahead of the one that ASYNC expects. Gaps are short: a restarted
  // worker leaves out the iterations that its predecessor has pushed to some of the chunks only.
  // They are not where a run goes on from a checkpoint, which has each chunk as it was when it was
  // written: the first push of a worker since then may have any distance.
  static constexpr uint64_t kMaxGap = 1000;
  // The last iteration of SSP, which adds the staleness to it.
  static constexpr uint64_t kMaxIteration = uint64_t{1} << 62;

  virtual ~UpdatePolicy() = default;

  // Takes a checked gradient for store->chunks()[index] from the worker of `session`. `sink` gets
  // one Reply, during this call or a later one. A push of an older view than the present one, or
  // one that comes while the slot is handed over, is dropped: its worker pushes again. Errors:
  //   FAILED_PRECONDITION: the chunk cannot be at this iteration, or the session has ended. The
  //     push is not counted.
  //   INVALID_ARGUMENT: the gradient's version does not exist yet. The push is not counted.
  //   UNAVAILABLE: the push is of a newer view, which this slot has not heard of.
  //   CANCELLED: Abandon has been called. The push is not counted.
  //   OUT_OF_RANGE: the update leaves the range of float32 (see StoredChunk::ApplySum). The push
  //     has been counted.
  //   ABORTED: workers disagree on the learning rate of an update, or on whether it is one; or
  //     worker 0 was lost before it had given values that are assigned.
  // The run must fail after those of the kind RUN_FAILED, which the last two are.
  virtual absl::Status Push(int index, WorkerSession& session, Gradient gradient,
                            std::shared_ptr<ReplySink> sink) = 0;

  // Whether the policy would count this push if it came now. One that it would not count may have
  // been overtaken, so that its gradient's memory has another content already.
  virtual bool Counts(int index, const GradientHeader& header) const = 0;

  // Adopts a view, and returns where the slot stands in it. Once it returns, no push of an older
  // view is counted. Errors: OUT_OF_RANGE and ABORTED as for Push.
  virtual absl::StatusOr<SlotPosition> Adopt(const PolicyView& view) = 0;

  // Has a chunk changed that an observer held up (ChunkObserver::BeforeChange). Errors:
  // OUT_OF_RANGE and ABORTED as for Push.
  virtual absl::Status Resume(int index) = 0;
  // Releases the replies of a chunk to changes up to number `change` (ChunkObserver::Changed).
  virtual void Confirm(int index, uint64_t change) = 0;

  // Where a worker that takes a rank should go on: the exchange, and as in ChunkClock how many
  // assignments lie before it.
  struct Start {
    uint64_t iteration = 0;
    uint64_t assignments = 0;
    uint64_t recent_assignments = 0;
  };
  // A worker takes a rank.
  virtual Start Join(uint32_t rank, uint64_t incarnation) = 0;
  // It has finished or is lost, which Adopt may say too. Has no effect after the next one's Join.
  virtual void Leave(uint32_t rank, uint64_t incarnation) = 0;

  // Drops the pushes that wait for other workers, because the run has failed. They get no reply.
  virtual void Abandon() = 0;

  // Returns for how long the shard should read no push of `worker` because the worker is ahead of
  // others that the update needs, or zero. The caller asks again after that time.
  virtual absl::Duration PushWait(uint32_t worker) const = 0;

  // Returns whether a reply may refer to the memory of the parameters. It may if no update of a
  // chunk can come before every worker has received the reply to its last push of that chunk.
  virtual bool RepliesMayBorrow() const = 0;

  // Returns whether a worker may go on from the chunk as it is, also if this process is lost: all
  // its changes are confirmed (Confirm), or the policy is ASYNC, where the others repeat theirs.
  // REQUIRES: the chunk's lock is held.
  virtual bool IsConfirmed(int index) const = 0;
  // Returns whether a reply may show the chunk as it is: it may not if that can still be lost with
  // this process, and the worker's own push does not depend on it. Then the caller has the reply
  // made later. REQUIRES: the chunk's lock is held for MayReply, and not for Defer.
  virtual bool MayReply(int index) const = 0;
  virtual void Defer(int index, DueReply reply) = 0;

  // Returns what waits for some worker.
  virtual std::vector<Pending> PendingUpdates() const = 0;

  // Fills in what only the policy knows.
  virtual void FillStats(ShardStats* stats) const = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_UPDATE_POLICY_H_
