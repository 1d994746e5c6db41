#ifndef EVENSHARD_SERVER_RECOVERY_REPLICATOR_H_
#define EVENSHARD_SERVER_RECOVERY_REPLICATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/view.pb.h"
#include "server/recovery/replica.h"
#include "server/store/chunk_observer.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// Keeps the replica of a slot equal to its primary: forwards each change of a chunk, once and not
// once for each worker (Li et al. 2014, "replication after aggregation"), and fills a replica that
// is new, chunk by chunk, while updates go on. A chunk's changes wait for the replica's receipt
// from the moment on at which the chunk's state was sent.
//
// Several streams share the work, and a chunk always uses the same one. A link is divided equally
// among the connections that send, and there are many of those to workers. When a stream breaks,
// Tick opens all again, and what was not confirmed is sent again; the replica knows what it has.
// Thread-safe. Lock order: a chunk's lock, then this one's.
class Replicator final : public ChunkObserver {
 public:
  struct Options {
    int slot = 0;
    std::shared_ptr<ParameterStore> store;
    ReplicaTransport* transport = nullptr;               // must outlive the replicator
    const Clock* clock = nullptr;                        // must outlive the replicator
    int streams = 1;                                     // to the replica
    absl::Duration patience = absl::InfiniteDuration();  // see is_unreachable
    // Called, without a lock, when the replica has confirmed a change (UpdatePolicy::Confirm).
    std::function<void(int index, uint64_t change)> confirm;
    // Called, without a lock, when is_filled(), is_idle() or is_unreachable() may have changed.
    std::function<void()> on_progress;
    // Called when the replica says that it lacks changes that it had confirmed, or has another
    // state.
    std::function<void(const absl::Status& failure)> on_failure;
  };

  explicit Replicator(const Options& options);
  // Calls Stop.
  ~Replicator() override;

  // Ends the streams. Once it returns, no callback is called any more, and an update that waits for
  // the replica waits for ever. Must not be called from a callback.
  void Stop();

  // Adopts a view in which this process is the slot's primary. Changes that waited for another
  // replica than the view's are confirmed.
  void Adopt(const View& view);

  bool ReadsGradients() const override { return true; }
  std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                  const ChunkChange& change) override
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

  // Opens broken streams again, and notices that the replica is silent. Called every 100 ms or so.
  void Tick();

  // Whether the view's replica has every chunk.
  bool is_filled() const;
  // Whether the replica should confirm something, and has confirmed nothing for Options::patience.
  bool is_unreachable() const;
  // Whether the replica has confirmed everything.
  bool is_idle() const;
  // Whether the replica has confirmed all changes of a chunk.
  bool IsConfirmed(int index) const;
  // The changes that the replica has not confirmed, and the chunks that it has not been sent.
  uint64_t unconfirmed() const;
  uint64_t unfilled() const;

 private:
  // How many chunks' states may be on the way to a replica that is filled.
  static constexpr int kFillAhead = 4;
  // The pause before a broken stream is opened again. It doubles with each attempt until something
  // is confirmed.
  static constexpr absl::Duration kShortestPause = absl::Milliseconds(50);
  static constexpr absl::Duration kLongestPause = absl::Milliseconds(800);

  enum class Fill : uint8_t { kNone, kSent, kConfirmed };

  struct ChunkState {
    Fill fill = Fill::kNone;
    uint64_t changes = 0;  // the number of the latest change that was sent
    // The changes that are not confirmed, oldest first. The last has the number `changes`.
    std::deque<ReplicaMessage> unconfirmed;
  };

  // One of the streams to the replica, which together are a link, with what it was sent.
  class Lane;
  using Lanes = std::vector<std::unique_ptr<Lane>>;
  // A change that is confirmed, or need not be any more.
  struct Due {
    int index;
    uint64_t change;
  };

  void Confirmed(Lane* lane);
  void Ended(uint64_t link, const absl::Status& status);
  void Send(int index, uint64_t change, const ReplicaMessage& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Ends the connections to a copy that is the slot's no more.
  void SetCopy(std::optional<ProcessId> copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsUnreachable() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Takes the present link's lanes, which the caller destroys without the lock.
  Lanes Unlink() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same, and opens a new link, on which it sends again what is not confirmed. A chunk whose
  // state was on the way counts as not sent, and its changes are added to `due`.
  Lanes Relink(std::vector<Due>& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves all unconfirmed changes of a chunk to `due`.
  void Forget(int index, std::vector<Due>& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Confirm(const std::vector<Due>& due);
  // Sends states of chunks while there is room. Acquires chunks' locks.
  void FillMore();
  // Adds the norm by which the chunk's last update was clipped, and whose gradients count, if they
  // are known.
  void SetAgreed(const ChunkClock& clock, ReplicaChunk* header) const;
  ReplicaMessage StateOf(const StoredChunk& chunk) const ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

  const Options options_;

  mutable absl::Mutex mutex_;
  uint64_t view_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t link_ ABSL_GUARDED_BY(mutex_) = 0;  // the number of the present link
  ProcessId primary_ ABSL_GUARDED_BY(mutex_);
  std::optional<ProcessId> copy_ ABSL_GUARDED_BY(mutex_);
  std::vector<ChunkState> chunks_ ABSL_GUARDED_BY(mutex_);  // parallel to the store's chunks
  uint64_t unconfirmed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t filled_ ABSL_GUARDED_BY(mutex_) = 0;   // chunks that the replica has
  int filling_ ABSL_GUARDED_BY(mutex_) = 0;       // states on the way
  size_t next_fill_ ABSL_GUARDED_BY(mutex_) = 0;  // the first chunk that may not have been sent
  // When the replica last confirmed something, or had nothing to confirm.
  absl::Time heard_ ABSL_GUARDED_BY(mutex_);
  bool told_unreachable_ ABSL_GUARDED_BY(mutex_) = false;           // to on_progress
  Lanes lanes_ ABSL_GUARDED_BY(mutex_);                             // empty without a replica
  std::optional<absl::Time> broken_since_ ABSL_GUARDED_BY(mutex_);  // since when some lane is
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_) = kShortestPause;
  std::string logged_ ABSL_GUARDED_BY(mutex_);  // why a stream ended, as logged the last time
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_REPLICATOR_H_
