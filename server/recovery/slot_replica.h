#ifndef EVENSHARD_SERVER_RECOVERY_SLOT_REPLICA_H_
#define EVENSHARD_SERVER_RECOVERY_SLOT_REPLICA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/placement/planned_config.h"
#include "proto/replication.pb.h"
#include "proto/view.pb.h"
#include "server/recovery/replica.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// The replica of a slot: it applies the changes that the slot's primary sends, and so has the same
// bits, until it takes the slot over. Thread-safe.
class SlotReplica {
 public:
  // With `is_complete`, `store` has the state of the primary already. Otherwise the primary fills
  // it. `config` must outlive the replica.
  SlotReplica(const PlannedConfig* config, int slot, std::shared_ptr<ParameterStore> store,
              bool is_complete);

  // Adopts a view in which this process holds the replica. Once it returns, no message of another
  // primary, or of an older view, is taken. If a new primary has yet to fill the replica, nothing
  // of what it has counts: another primary's changes may have the same numbers and other bits.
  void Adopt(const View& view);

  // Takes one message of a stream that the primary with this incarnation opened in this view. A
  // message that the replica has taken before is only confirmed. Errors:
  //   FAILED_PRECONDITION: the sender is not the primary in the present view.
  //   UNAVAILABLE: the view is newer than the replica's; try again.
  //   INVALID_ARGUMENT: the slot has no such chunk, the data has a wrong length or an unknown
  //     encoding, the worker does not go with the update policy, or the slots cannot have agreed on
  //     the norm or the set of workers.
  //   DATA_LOSS: changes are missing before this one.
  //   OUT_OF_RANGE: the update leaves the range of float32, as it must have at the primary.
  absl::StatusOr<ReplicaReceipt> Take(uint64_t view, uint64_t primary_incarnation,
                                      const ReplicaMessage& message);

  // Ends the replica and returns its parameters. No message is taken any more.
  std::shared_ptr<ParameterStore> Retire();

  ParameterStore& store() { return *store_; }  // for tests

 private:
  // The state that each chunk's lock guards besides the chunk.
  struct Place {
    uint64_t view = 0;  // 0 refuses everything
    bool is_filled = false;
  };

  absl::Status CheckSender(uint64_t view, uint64_t primary_incarnation, uint64_t own_view) const;
  absl::Status CheckChange(const Chunk& chunk, const ReplicaChunk& header,
                           const Segments& data) const;
  absl::Status TakeState(StoredChunk& chunk, Place& place, const ReplicaChunk& header,
                         const Segments& data, std::vector<double> norms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(chunk.mutex);
  absl::Status TakeChange(StoredChunk& chunk, const Place& place, const ReplicaChunk& header,
                          const Segments& data, std::vector<double> norms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(chunk.mutex);
  // With `begins_anew`, no chunk counts as filled: from the new view's first message on.
  void SetView(uint64_t view, bool begins_anew);

  const PlannedConfig& config_;
  const int slot_;
  const std::shared_ptr<ParameterStore> store_;
  std::vector<Place> places_;  // parallel to the store's chunks

  mutable absl::Mutex mutex_;
  uint64_t primary_ ABSL_GUARDED_BY(mutex_) = 0;  // the incarnation of the present view's primary
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_SLOT_REPLICA_H_
