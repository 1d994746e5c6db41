#ifndef EVENSHARD_SERVER_RECOVERY_SLOT_HOST_H_
#define EVENSHARD_SERVER_RECOVERY_SLOT_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"
#include "proto/view.pb.h"
#include "server/recovery/agreement_reporter.h"
#include "server/recovery/replica.h"
#include "server/recovery/slot_primary.h"
#include "server/recovery/slot_replica.h"
#include "server/shard/shard.h"

namespace evenshard {

// The slots of which a ps process is primary or holds the replica, as its view says. Without views
// the process is primary of the slot with its own index, for good. Thread-safe.
//
// How a slot's state moves with the views:
//   - At the start of a generation, primary and replica make it from the same checkpoint, or from
//     the initial parameters.
//   - A replica that becomes primary goes on with what it has.
//   - A replica that is not complete is filled by its primary (Replicator).
//   - A primary that hands its slot over keeps what it has as the replica.
class SlotHost : private AgreementTransport {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the host
    ProcessId self = {};
    const Clock* clock = nullptr;  // must outlive the host
    bool has_views = false;        // otherwise Adopt is not called
    // Null without views or replicas. Must outlive the host.
    ReplicaTransport* transport = nullptr;
    // Brings reports to other processes; null unless the config clips the mean or the policy is
    // QUORUM. Must outlive the host.
    AgreementTransport* agreements = nullptr;
    // Where checkpoints are; null if the config has none. Must outlive the host.
    Storage* storage = nullptr;
    // Without views: what the run begins from (View.generation, checkpoint, run and worker set).
    View start = {};
    // Writes checkpoints in a thread of its own. Otherwise only Work does (simulations).
    bool has_threads = true;
    bool breaks_cuts = false;  // see Checkpointer::Options
    // See ViewLink::HoldsRoles.
    std::function<bool()> holds_roles = [] { return true; };
    // Called with each shard before it takes part.
    std::function<void(Shard& shard)> on_primary = [](Shard&) {};
    // Called when State() has changed or, without threads, when there is work. Must not call back.
    std::function<void()> on_state = [] {};
    // Called under the chunk's lock for each change of a chunk at its primary; for tests.
    ChunkObserver* observer = nullptr;  // see SlotPrimary::Options
  };

  // Errors: those of Shard::Create; those of reading the checkpoint.
  static absl::StatusOr<std::unique_ptr<SlotHost>> Start(const Options& options);
  // Ends every shard.
  ~SlotHost() override;

  // Adopts a view with a larger number than any before. Blocks while a slot's state is read from a
  // checkpoint. What cannot be read is read again: until then the process does not have the
  // slot. If that lasts for limits.startup_seconds, or for a quarter of limits.exchange_seconds if
  // that is less, or if the checkpoint is damaged, State() says so, and an older one may do.
  // Failures are in State() too.
  void Adopt(const View& view);

  // Adopts no view any more, and finishes the checkpoints that are being written, and a last one if
  // the run is over, if it can by the deadline. When it returns, no thread of the host's asks
  // holds_roles. REQUIRES: the shards are closed, and Tick is not called any more.
  void End(absl::Time deadline);

  // Return null unless this process holds that role for the slot.
  std::shared_ptr<Shard> Primary(int slot) const;
  std::shared_ptr<SlotReplica> Copy(int slot) const;

  // Takes a report of some slot's primary, if this process is primary of slot 0. See
  // AgreementDecider::Take. Errors: also UNAVAILABLE if it is not.
  void TakeReport(const AgreementReport& report, AgreementDecider::Answer answer) const;

  // Returns the index of the process that is primary of a slot in the view with this number, or -1
  // if none is. Errors: UNAVAILABLE if this process follows another view.
  absl::StatusOr<int> PrimaryProcess(uint64_t view, uint32_t slot) const;

  // The state that the process announces to the coordinator.
  ProcessState State() const;
  View view() const;
  // Returns the statistics of a slot. Errors: UNAVAILABLE if this process is not its primary.
  absl::StatusOr<ShardStats> Stats(int slot) const;

  // Does what is due by the clock. Called every 100 ms or so. Blocks while a slot's state is read
  // again.
  void Tick();
  // Without threads: does for each slot what SlotPrimary::Work does. Returns false if there was
  // nothing to do.
  bool Work();

 private:
  explicit SlotHost(const Options& options);

  // Those of the slots that it is primary of.
  void Report(const ProcessId& decider, const AgreementReport& report,
              AgreementDecider::Answer answer) override;
  // Returns the state of a slot with which the view's generation begins.
  absl::StatusOr<std::shared_ptr<ParameterStore>> LoadStore(int slot, const View& view) const;
  // Gives a slot the roles that it has in the view, or notes that its state cannot be read now.
  void TakeRoles(int slot, const View& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(adopt_mutex_);
  void LoadAgain();
  bool IsUnloaded(int slot) const;
  absl::Status AdoptSlot(int slot, const View& view);
  absl::Status DoesNotHave(const View& view, absl::string_view role, int slot) const;
  absl::StatusOr<std::shared_ptr<SlotPrimary>> MakePrimary(int slot,
                                                           std::shared_ptr<ParameterStore> store,
                                                           uint64_t history, bool takes_over);
  std::vector<std::shared_ptr<SlotPrimary>> Primaries() const;
  void Drop(int slot, const absl::Status& reason);
  void Fail(const absl::Status& failure);

  const Options options_;

  absl::Mutex adopt_mutex_;  // held while roles change; acquired before mutex_
  bool has_ended_ ABSL_GUARDED_BY(adopt_mutex_) = false;

  mutable absl::Mutex mutex_;
  View view_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::shared_ptr<SlotPrimary>> primaries_ ABSL_GUARDED_BY(mutex_);  // by slot
  std::map<int, std::shared_ptr<SlotReplica>> copies_ ABSL_GUARDED_BY(mutex_);
  // The slots whose state could not be read from the generation's checkpoint, and since when.
  std::map<int, absl::Time> unloaded_since_ ABSL_GUARDED_BY(mutex_);
  absl::Time load_again_ ABSL_GUARDED_BY(mutex_);
  ProcessState::Unreadable unreadable_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_SLOT_HOST_H_
