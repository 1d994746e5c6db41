#ifndef EVENSHARD_SERVER_RECOVERY_CHECKPOINTER_H_
#define EVENSHARD_SERVER_RECOVERY_CHECKPOINTER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/float_buffer.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/shard_file_writer.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"
#include "proto/view.pb.h"
#include "server/recovery/checkpoint_completion.h"
#include "server/recovery/cut_schedule.h"
#include "server/store/chunk_observer.h"
#include "server/store/copy_memory.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// Writes a slot's part of the checkpoints while training goes on.
//
// SYNC: a cut of iteration k has every chunk as it is when its iteration is k. A chunk whose next
// update comes before it is written is copied first. The copies' memory is bounded by
// recovery.checkpoint.buffer_bytes; beyond it, the update waits until the chunk is written. All
// slots cut at the same iterations without having to talk: at multiples of every_iterations, or
// where the view says.
//
// ASYNC: every chunk as it is when its turn comes. Without views no cut begins before a worker has
// pushed: workers begin once the processes of all slots are there, and each process has looked in
// the folder for what the run begins from, where it would take a cut for one of an earlier run.
//
// What the workers have registered (RegisteredStates) is in slot 0's part. A worker gives it before
// it pushes at the cut's exchange; a cut that is written earlier waits for it.
//
// A cut is left out if it is due while the slot still writes another one, or while several that it
// has written wait for slower slots. After that the slot starts only every 2nd, 4th, 8th ...
// checkpoint. All slots number checkpoints in the same way, so slow and fast ones still share some.
// A slot whose checkpoints get complete in time starts more of them again. Whenever one is due, it
// removes what other slots have written of earlier ones that lack its own part, since they can
// never be complete. So the folder stays small, however slow a slot is, and no slot waits for ever.
//
// When the run is over and the process ends, each slot writes a last checkpoint: all slots are
// where the run has ended. It is never left out. There is none if slot 0 has moved when no worker
// was left to tell what it had registered: the one before can be gone on from, and it could not.
//
// The slot that finds the records of all slots in place completes the checkpoint with the manifest.
// Thread-safe. Lock order: a chunk's lock, then this one's.
class Checkpointer final : public ChunkObserver {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    int slot = 0;
    std::shared_ptr<ParameterStore> store;
    bool takes_over = false;  // the slot in the middle of a generation, from another process
    Storage* storage = nullptr;
    const Clock* clock = nullptr;
    bool has_thread = true;  // otherwise only Work() writes
    // Fault injection: writes each chunk as it is when its turn comes, which lets the simulation
    // prove that it detects inconsistent checkpoints.
    bool breaks_cuts = false;
    // Called without a lock: the chunk may change now (UpdatePolicy::Resume).
    std::function<void(int index)> resume;
    // Whether every change of the chunk is confirmed. Called under the chunk's lock.
    std::function<bool(int index)> is_confirmed;
    // Whether no other process can hold the slot by now. Another writer would write the same under
    // SYNC, but not under ASYNC.
    std::function<bool()> holds_role = [] { return true; };
  };

  explicit Checkpointer(Options options);
  // Calls Stop.
  ~Checkpointer() override;

  // Ends the writing; what is not complete stays incomplete. Blocks while a chunk is written. One
  // thread calls it.
  void Stop();

  // Calls Stop, and then writes what can still be written of the present checkpoint, until the
  // deadline. If the run `is_over`, also a last one, unless it is there. REQUIRES: nothing changes
  // the chunks any more, and Tick is not called.
  void FinishBy(absl::Time deadline, bool is_over);

  // Which run and generation the checkpoints are of, and what else of a view they need.
  void Adopt(const View& view);

  bool BeforeChange(int index, const StoredChunk& chunk) override
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                  const ChunkChange& change) override
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);

  // Begins what is due by the clock, and lets Work() look at what other slots have written. Called
  // every 100 ms or so.
  void Tick();

  // Writes one chunk, or completes a file or a checkpoint. Returns false if there was nothing to
  // do. Called by one thread at a time.
  bool Work();

  void FillStats(ShardStats::Recovery* recovery) const;

 private:
  enum class Progress : uint8_t { kDue, kCopied, kTaken };

  struct Copy {
    int index = 0;
    ChunkClock clock = {};
    FloatBuffer arrays = {};  // at least as large as the chunk's, one after another
  };

  // The checkpoint that is being written.
  struct Active {
    Active(const Cut& cut, size_t chunks)
        : cut(cut), progress(chunks, Progress::kDue), left(chunks) {}

    Cut cut;
    uint64_t number = 0;                     // see NumberOfCut
    std::vector<Progress> progress;          // by chunk
    size_t left;                             // chunks that are not written
    std::deque<Copy> copies;                 // made before their updates
    std::optional<StatesByName> registered;  // nullopt: not known yet
    std::set<int> held_up;                   // the chunks whose update waits
    absl::Time held_up_since;
  };

  bool IsSync() const;
  // Whether a chunk is where a cut is that this slot has not begun or left out.
  bool IsDue(const ChunkClock& clock) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return clock.iteration > last_begun_.exchange && IsCutAt(proto_, view_, clock);
  }
  void Begin(const Cut& cut) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(const Cut& cut) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // as last_begun_
  void Activate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);            // last_begun_
  Cut LastCut();                                                    // where the run has ended
  // Whether the slot has been trained since the generation began, here or where it was before.
  bool HasTrained();
  // Whether workers may have registered what only a process knew that had slot 0 before.
  bool LacksRegistered();
  // Begins the last cut, unless it has its part in place.
  void BeginLast();
  void WorkUntil(absl::Time deadline);
  // Counts a cut that is not begun, and begins fewer from now on.
  void LeaveOut(const Cut& cut, absl::string_view reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Fill(Copy& copy, const StoredChunk& chunk) ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  // Takes the next chunk to write, if one can be taken.
  std::optional<Copy> TakeNext();
  std::optional<Copy> TakeChunk(int index);
  // Begins the active checkpoint's file.
  absl::Status OpenWriter(const Cut& cut);
  absl::Status Write(const Copy& copy);
  // Whether what the workers have registered at the cut is known, or nothing is registered.
  bool KnowsRegistered();
  // Puts the finished file in place.
  absl::Status Finish(const Cut& cut);
  // Ends the active checkpoint. The chunks that wait go on.
  void End(const absl::Status& status);
  // Completes what can be, and removes what is too old or can never be complete.
  void LookAtFolder();
  void CountFailure(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(const std::stop_token& stop);

  const Options options_;
  const ClusterConfig& proto_;
  const CheckpointFolder folder_;
  CheckpointCompletion completion_;
  CopyMemory copy_memory_;

  // Used by Work() only.
  std::unique_ptr<ShardFileWriter> writer_;  // null until the active checkpoint's first chunk
  int next_ = 0;                             // where TakeNext() goes on
  absl::Duration writing_;                   // what the file has taken, less the waits for chunks
  FloatBuffer own_copy_;                     // of a chunk that is written in its turn

  mutable absl::Mutex mutex_;
  View view_ ABSL_GUARDED_BY(mutex_);  // without slots
  std::optional<Active> active_ ABSL_GUARDED_BY(mutex_);
  Cut last_begun_ ABSL_GUARDED_BY(mutex_);            // or left out
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;  // NumberOfCut(last_begun_)
  uint64_t stride_ ABSL_GUARDED_BY(mutex_) = 1;       // the cuts with multiples of it are begun
  std::atomic<bool> has_changed_ = false;             // some chunk, by a push to this process
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;      // the run: each slot writes the last cut
  bool tidies_ ABSL_GUARDED_BY(mutex_) = false;       // Work() is to remove what lacks this slot
  bool looks_ ABSL_GUARDED_BY(mutex_) = false;        // Work() is to look at the folder
  absl::Duration held_up_ ABSL_GUARDED_BY(mutex_);
  uint64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_failure_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;  // counts what may give the thread work

  std::jthread thread_;  // joined first, since it uses the other members
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_CHECKPOINTER_H_
