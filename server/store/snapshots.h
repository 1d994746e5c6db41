#ifndef EVENSHARD_SERVER_STORE_SNAPSHOTS_H_
#define EVENSHARD_SERVER_STORE_SNAPSHOTS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"
#include "server/store/chunk_observer.h"
#include "server/store/copy_memory.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// Serves a slot's parameters to readers outside the training while updates go on.
//
// SYNC: a snapshot of iteration k has the parameters of every chunk as they are when the chunk's
// iteration is k. A chunk that is about to leave k is copied first, if a reader still has to take
// it; readers of the same k share the copy. The copies' memory is bounded by limits.snapshot_bytes.
// Beyond it the readers that need the chunk fail. An update never waits.
//
// ASYNC: there is no iteration in common, and nothing is copied. Each chunk is taken as it is when
// its turn comes, once it has had at least k updates.
//
// Thread-safe. Lock order: a chunk's lock, then this one's, then those that `wake` acquires.
class Snapshots final : public ChunkObserver {
 private:
  struct Snapshot;

 public:
  // The parameters of a chunk that a reader takes.
  struct Taken {
    const Chunk& info;
    const ChunkClock& clock;
    absl::Span<const float> parameters;
    // Keeps `parameters` valid. Null if they are valid only until Reader::Take returns.
    std::shared_ptr<const void> owner;
  };

  // One reader's part in a snapshot. Used by one thread at a time. REQUIRES: the Snapshots outlive
  // it; what it has taken may outlive both.
  class Reader {
   public:
    ~Reader();

    enum class Progress { kTaken, kNoneYet, kAll };
    // Hands a chunk that is ready to `use`, each chunk once and in any order. After kNoneYet,
    // `wake` is called when a retry may succeed. Errors: RESOURCE_EXHAUSTED if a chunk could not be
    // copied before its update; OUT_OF_RANGE if the run is over and a chunk has not come so far;
    // that of Snapshots::End.
    absl::StatusOr<Progress> Take(absl::FunctionRef<void(const Taken&)> use);

   private:
    friend class Snapshots;
    enum class State : uint8_t { kNotReady, kReady, kTaken };

    Reader(Snapshots* owner, std::function<void()> wake);
    // Callers hold the lock of owner_ and not of another Snapshots.
    void SetReady(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(owner_->mutex_);
    void SetTaken(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(owner_->mutex_);
    void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(owner_->mutex_);

    Snapshots* const owner_;
    const std::function<void()> wake_;
    Snapshot* snapshot_ = nullptr;                               // constant once it is registered
    std::vector<State> states_ ABSL_GUARDED_BY(owner_->mutex_);  // by chunk
    std::deque<int> ready_ ABSL_GUARDED_BY(owner_->mutex_);
    size_t left_ ABSL_GUARDED_BY(owner_->mutex_);  // chunks that are not taken
    bool waits_ ABSL_GUARDED_BY(owner_->mutex_) = false;
    absl::Status failure_ ABSL_GUARDED_BY(owner_->mutex_);
  };

  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, as the store
    ParameterStore* store = nullptr;
    int slot = 0;  // for errors
    // Whether no update will come any more because all workers have finished. Called without a
    // lock.
    std::function<bool()> is_over = [] { return false; };
  };

  explicit Snapshots(Options options);
  ~Snapshots() override;

  // Begins to read the snapshot of iteration k, or takes part in one that has begun. `wake` is
  // called under locks: it must not block or call back.
  // Errors: ABORTED if a chunk has passed k, with the iteration that it is at; INVALID_ARGUMENT if
  // there are no parameters at k yet (Config::IsInitial); that of End.
  absl::StatusOr<std::unique_ptr<Reader>> Open(uint64_t k, std::function<void()> wake);

  bool BeforeChange(int index, const StoredChunk& chunk) override
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                  const ChunkChange& change) override
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  void ChangeFailed(const absl::Status& failure) override { End(failure); }

  // Says how far the chunks have come.
  void FillProgress(ShardStats::Progress* progress) const;

  // Wakes the readers that wait, because is_over() may have changed.
  void WakeAll();
  // Ends all readers with `reason`, the present ones and later ones. The first call counts. They
  // are told of a reason of the kind RUN_FAILED as FAILED_PRECONDITION.
  void End(const absl::Status& reason);
  // Gives memory back that no copy uses, unless there are readers. Called from time to time.
  void ReleaseMemory();

 private:
  struct Kept;

  bool IsSync() const;
  // The measure of a chunk's progress: its exchange or, under ASYNC, its version.
  uint64_t PositionOf(const StoredChunk& chunk) const ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  bool IsReadyAt(uint64_t k, uint64_t position) const {
    return IsSync() ? position == k : position >= k;
  }
  // Copies a chunk that a reader still needs as it is.
  void Keep(int index, const StoredChunk& chunk) ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  // Finds which chunks are ready for a new reader.
  absl::Status LookAtChunks(Reader& reader);
  void Register(Reader& reader, uint64_t k) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unregister(Reader& reader);
  // Drops a copy that every reader has taken.
  static void DropIfTaken(Snapshot& snapshot, int index);
  static bool IsNeeded(const Snapshot& snapshot, int index);

  const Options options_;
  // Also the copies', which may outlive this in messages that are being sent.
  const std::shared_ptr<CopyMemory> copy_memory_;

  // Whether there are snapshots. Read without order: a reader looks at every chunk, under its lock,
  // after it has set this.
  std::atomic<bool> is_active_{false};
  absl::Mutex mutex_;
  std::list<Snapshot> snapshots_ ABSL_GUARDED_BY(mutex_);  // with at least one reader each
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_SNAPSHOTS_H_
