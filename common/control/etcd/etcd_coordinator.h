#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_COORDINATOR_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_COORDINATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/control/etcd/coordinator_checkpoints.h"
#include "common/control/etcd/coordinator_term.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_lease.h"
#include "common/control/etcd/etcd_machine.h"
#include "common/control/etcd/etcd_watch.h"
#include "common/control/view/view_coordinator.h"

namespace evenshard {

// A candidate for coordinator of a run in etcd. Every ps has one. etcd elects one candidate, and
// another when that one's lease has ended. This only delays the next view: the next coordinator
// goes on from the last view. Works until it is destroyed.
//
// A process whose key is deleted counts as gone: dead, or fenced by the end of its lease, as
// EtcdLink promises under its assumptions. Shared memory between processes is not fenced by a
// lease, so it has to be off.
class EtcdCoordinator final : private EtcdMachine {
 public:
  struct Options {
    std::shared_ptr<EtcdRuntime> etcd;
    std::string run;                     // recovery.etcd.run
    absl::Duration ttl;                  // whole seconds, at least EtcdLease::kShortestTtl
    std::string name;                    // of this process, for operators: "ps 1"
    ViewCoordinator::Settings settings;  // the first coordinator of a run gives it its `run`
    CoordinatorCheckpoints* checkpoints =
        nullptr;  // null without checkpoints; must outlive the coordinator
    // Called by the coordinator's runner with each event for the operator.
    std::function<void(const RecoveryEvent& event)> on_event = [](const RecoveryEvent&) {};
  };

  explicit EtcdCoordinator(const Options& options);
  // Blocks for a few seconds at most.
  ~EtcdCoordinator() override;

  // Whether this candidate is the coordinator, as far as it knows.
  bool IsElected() const { return is_elected_; }

 private:
  Step Next(absl::Time now) override;
  void Answered(const EtcdAnswer& answer, absl::Time now) override;
  void SetFree(bool is_free);
  // Tries to create the candidate's key.
  etcdserverpb::TxnRequest Campaign() const;
  void BeginTerm(int64_t created);
  void EndTerm(const absl::Status& over);

  // Constant after construction.
  const Options options_;
  const EtcdKeys keys_;

  // Thread-safe.
  const std::unique_ptr<EtcdRunner> runner_;
  std::atomic<bool> is_free_ = false;  // nobody is the coordinator
  std::atomic<bool> is_elected_ = false;

  // The runner's.
  absl::Time paused_until_ = absl::InfinitePast();
  bool gives_up_ = false;  // this process must not make views

  // Destroyed first, because their runners use the other members.
  const EtcdWatch watch_;
  std::unique_ptr<EtcdLease> lease_;     // only while there is something to win or to keep
  std::optional<CoordinatorTerm> term_;  // while this is the coordinator
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_COORDINATOR_H_
