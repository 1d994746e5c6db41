#ifndef EVENSHARD_SERVER_RECOVERY_SLOT_PRIMARY_H_
#define EVENSHARD_SERVER_RECOVERY_SLOT_PRIMARY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"
#include "proto/view.pb.h"
#include "server/agreement/agreement_decider.h"
#include "server/agreement/clipping.h"
#include "server/agreement/quorum.h"
#include "server/agreement/quorum_decider.h"
#include "server/recovery/agreement_reporter.h"
#include "server/recovery/checkpointer.h"
#include "server/recovery/replica.h"
#include "server/recovery/replicator.h"
#include "server/shard/chunk_threads.h"
#include "server/shard/shard.h"
#include "server/store/chunk_observer.h"

namespace evenshard {

// A slot at its primary: the shard, what keeps its replica equal, what writes its checkpoints, and
// what agrees with the other slots on the norm of the gradient and on whose gradients count.
// Thread-safe.
class SlotPrimary final {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    int slot = 0;
    const Clock* clock = nullptr;
    std::shared_ptr<ParameterStore> store;
    uint64_t history = 0;                   // see JoinResponse.history; 0 for a new one
    bool takes_over = false;                // see Checkpointer::Options
    ReplicaTransport* transport = nullptr;  // may be null
    Storage* storage = nullptr;             // may be null
    // Null unless the config clips the mean or the policy is QUORUM.
    AgreementTransport* agreements = nullptr;
    bool has_threads = true;   // see SlotHost::Options
    bool breaks_cuts = false;  // see Checkpointer::Options
    std::function<bool()> holds_roles;
    // The slot's part of ProcessState has changed or, without threads, there is work.
    std::function<void()> on_progress;
    ChunkObserver* observer = nullptr;  // also hears of changes; may be null
  };

  // Errors: those of Shard::Create.
  static absl::StatusOr<std::unique_ptr<SlotPrimary>> Create(Options options);
  ~SlotPrimary();

  const std::shared_ptr<Shard>& shard() const { return shard_; }
  // See AgreementDecider::Take. Errors: also UNAVAILABLE if this is not slot 0.
  void TakeReport(const AgreementReport& report, AgreementDecider::Answer answer) const;

  // See Shard::Adopt.
  void Adopt(const View& view);
  // Instead: of `view` only the run, the generation and the worker set count, which checkpoints
  // need. The processes are where the config says.
  void AdoptWithoutViews(const View& view);
  // Fills in what ProcessState says of the slot.
  void Describe(ProcessState* state) const;
  // Fills in what the slot knows of ShardStats.Recovery.
  void FillStats(ShardStats::Recovery* recovery) const;

  void Tick();
  // Makes an update that has waited for an agreement, or writes a chunk of a checkpoint, if one is
  // due. Returns false if nothing was to be done. Called by simulations, which have no threads.
  bool Work();

  // See Checkpointer::FinishBy.
  void FinishCheckpoint(absl::Time deadline);

  // Ends the shard and returns its state. When it returns, nothing changes the state any more, and
  // no thread of this object's runs. Called before the destructor.
  std::shared_ptr<ParameterStore> Retire(const absl::Status& reason);

 private:
  explicit SlotPrimary(Options& options);

  // What the slot agrees on with the others.
  struct Agreement {
    std::unique_ptr<AgreementDecider> decider;    // of slot 0 only
    std::shared_ptr<AgreementReporter> reporter;  // of a slot that has something to ask
  };

  void MakeClipping();
  void MakeQuorum();
  std::shared_ptr<AgreementReporter> MakeReporter(AgreementSubject* subject);
  std::vector<const Agreement*> Agreements() const { return {&norm_, &set_}; }
  // Has all chunks changed that have waited for an agreement.
  void ResumeAll();

  const Options options_;
  // Null unless the config clips the mean, and unless the policy is QUORUM.
  std::unique_ptr<Clipping> clipping_;
  std::unique_ptr<Quorum> quorum_;
  Agreement norm_;
  Agreement set_;                   // of workers
  QuorumDecider* timed_ = nullptr;  // the decider in set_
  std::shared_ptr<Shard> shard_;

  mutable absl::Mutex mutex_;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // of the present view
  bool handing_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<SlotPosition> position_ ABSL_GUARDED_BY(mutex_);  // in the present view

  // Without threads: the next chunk whose update may have waited for an agreement.
  std::atomic<size_t> next_resumed_;

  // Destroyed first, since they use the other members.
  std::unique_ptr<Replicator> replicator_;      // null without replicas
  std::unique_ptr<Checkpointer> checkpointer_;  // null without checkpoints
  ChunkThreads resuming_;  // make the updates that have waited for an agreement
  std::jthread timer_;     // of timed_, with threads
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_SLOT_PRIMARY_H_
