#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_LINKS_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_LINKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "proto/parameter_server.pb.h"
#include "proto/view.pb.h"
#include "worker/exchange/core/exchange_round.h"
#include "worker/exchange/core/exchange_transport.h"
#include "worker/exchange/core/slot_link.h"

namespace evenshard {

// A worker's links to all slots: it has the transport connect them, moves them where a view has
// them, and tells the round which of them are connected. Not thread-safe, except for Name:
// ExchangeCore guards it.
class SlotLinks {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the links, like all pointers here
    int rank = 0;
    uint64_t incarnation = 0;
    const Clock* clock = nullptr;
    ExchangeTransport* transport = nullptr;
    ExchangeRound* round = nullptr;
    bool has_views = false;
    std::string process = {};  // see JoinRequest
    SlotPatience patience = {};
  };

  explicit SlotLinks(const Options& options);

  // Sets where the slots are in a run without views.
  void MoveTo(const std::vector<std::string>& addresses);
  // Moves each slot to its primary in the view. Unless the worker `is_leaving`, a slot that stays
  // is sent all unanswered pushes again under the new view's number, or gets a new attempt that
  // names the view. Returns the slots whose streams have to be woken.
  std::vector<int> Follow(const View& view, bool is_leaving);
  // Begins to connect the slots that have no connection and no attempt. `until_joined`: only the
  // first slot until that has accepted this worker, so that it decides between workers that want
  // the same rank at the same time.
  void Connect(bool until_joined);
  // Ends all connections, and forgets where the slots are, and the registered state.
  void Forget();
  // Slot 0's process is told this with each Join, since it may not be the one that knows it.
  void Keep(RegisteredState state) { registered_ = std::move(state); }
  const std::optional<RegisteredState>& kept() const { return registered_; }

  // The slot's attempt has succeeded. Returns whether the attempt is current. Errors: see
  // SlotLink::Accept.
  absl::StatusOr<bool> Accept(int slot, uint64_t attempt, const JoinResponse& response);
  bool IsCurrent(int slot, uint64_t attempt) const { return slots_[slot].IsCurrent(attempt); }
  // The slot's attempt or connection has ended: begins the next attempt. Errors: see
  // SlotLink::Break.
  absl::Status Break(int slot, const absl::Status& status);
  // Restarts attempts that take too long. Errors: slots have been missed for too long.
  absl::Status Check();

  // The slots that cannot be reached where the view has them.
  std::vector<uint32_t> Unreachable() const;
  bool IsConnected(int slot) const { return slots_[slot].is_connected(); }
  bool AllJoined() const;
  // The slots that gave the least and the most as the iteration to start with. REQUIRES:
  // AllJoined().
  std::pair<const SlotLink*, const SlotLink*> StartRange() const;
  // "shard 1 (10.0.0.2:50051)", with the address at which the slot is now. Thread-safe.
  std::string Name(int slot) const;

 private:
  void Attempt(int slot, absl::Duration delay);
  void Drop(int slot);
  void SetAddress(int slot, const std::string& address);

  const Options options_;
  std::vector<SlotLink> slots_;
  uint64_t view_ = 0;
  std::optional<RegisteredState> registered_;

  mutable absl::Mutex names_mutex_;  // no other lock is acquired under it
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(names_mutex_);  // by slot
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_LINKS_H_
