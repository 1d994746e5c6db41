#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_QUORUM_RULE_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_QUORUM_RULE_H_

#include <functional>
#include <vector>

#include "common/placement/simulator/network/event_queue.h"
#include "proto/config.pb.h"

namespace evenshard {

// Whose gradients count under QUORUM, as server/agreement/quorum_decider.h decides it: those of the
// first workers that have pushed everything, and of those that follow within a time of grace. Not
// thread-safe.
class QuorumRule final : private EventQueue::Target {
 public:
  // Called with the workers whose gradients count, in the order in which they arrived.
  using Decided = std::function<void(int update, const std::vector<int>& workers)>;

  // `members` says how many workers each stands for. `events` must outlive the rule.
  QuorumRule(const Update& update, std::vector<double> members, EventQueue* events,
             Decided decided);

  // The update that is decided next. Updates count from 0.
  int update() const { return update_; }
  // A worker has pushed all of its gradient for update().
  void Arrived(int worker);

 private:
  void OnEvent(int kind, int index) override;
  void Decide();

  // Constant after construction.
  const double quorum_;
  const double grace_;
  const std::vector<double> members_;
  double workers_ = 0;
  EventQueue* const events_;
  const Decided decided_;

  int update_ = 0;
  std::vector<int> arrived_;
  double arrived_members_ = 0;
  bool is_reached_ = false;  // enough have arrived
  double decided_at_ = 0;
  double average_ = 0;  // of the times from a decision until enough have arrived for the next
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_QUORUM_RULE_H_
