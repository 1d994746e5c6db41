#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_COORDINATOR_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_COORDINATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/wakeup.h"
#include "common/control/etcd/coordinator_checkpoints.h"
#include "common/control/etcd/etcd_client.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_lease.h"
#include "common/control/etcd/etcd_watch.h"
#include "common/control/view/view_coordinator.h"
#include "proto/view.pb.h"

namespace evenshard {

// A candidate for coordinator of a run in etcd. Every ps has one. etcd elects one candidate, and
// another when that one's lease has ended. This only delays the next view: the next coordinator
// goes on from the last view. Works by threads of its own until it is destroyed.
//
// A process whose key is deleted counts as gone: dead, or fenced by the end of its lease, as
// EtcdLink promises under its assumptions. Shared memory between processes is not fenced by a
// lease, so it has to be off.
class EtcdCoordinator {
 public:
  struct Options {
    EtcdClient::Options client;
    std::string run;                     // recovery.etcd.run
    absl::Duration ttl;                  // whole seconds, at least EtcdLease::kShortestTtl
    const Clock* clock = nullptr;        // must outlive the coordinator
    std::string name;                    // of this process, for operators: "ps 1"
    ViewCoordinator::Settings settings;  // `run` is chosen by the first coordinator of the run
    CoordinatorCheckpoints* checkpoints =
        nullptr;  // null without checkpoints; must outlive the coordinator
    // Called by the coordinator's thread with each event for the operator.
    std::function<void(const RecoveryEvent& event)> on_event = [](const RecoveryEvent&) {};
  };

  explicit EtcdCoordinator(const Options& options);
  // Blocks for a few seconds at most.
  ~EtcdCoordinator();

  // Whether this candidate is the coordinator, as far as it knows.
  bool IsElected() const { return is_elected_; }

 private:
  void Run(const std::stop_token& stop);
  // Returns the revision that created this candidate's key, or nullopt if another one was faster.
  absl::StatusOr<std::optional<int64_t>> Campaign(const EtcdLease& lease,
                                                  const std::stop_token& stop);
  // Makes views until the term is over, and returns why it is.
  absl::Status RunTerm(const EtcdLease& lease, int64_t created, const std::stop_token& stop);
  void SetFree(bool is_free);

  // Constant after construction.
  const Options options_;
  const EtcdKeys keys_;

  // Thread-safe.
  EtcdClient client_;
  Wakeup wakeup_;
  std::atomic<bool> is_free_ = false;  // nobody is the coordinator
  std::atomic<bool> is_elected_ = false;

  // Destroyed first, because their threads use the other members.
  const EtcdWatch watch_;
  std::jthread thread_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_COORDINATOR_H_
