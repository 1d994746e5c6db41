#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_LINK_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_LINK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_lease.h"
#include "common/control/etcd/etcd_machine.h"
#include "common/control/etcd/etcd_watch.h"
#include "common/control/view/view_link.h"
#include "proto/config.pb.h"
#include "proto/etcd/verdict.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// A process's link to the views of its run through etcd. An EtcdCoordinator in one of the ps makes
// the views. The process's place is a key with the process's lease. The coordinator gives the roles
// of a process to others when that key is gone, so the process must answer nobody by then:
// HoldsRoles() becomes false before the lease can end, under the assumptions that EtcdLease states,
// and nobody but the link deletes the key.
//
// The link ends (Listener::on_end) with
// - UNAVAILABLE if the lease has ended, since the roles may be another's: the process has to be
//   started again, by whatever supervises it;
// - ALREADY_EXISTS if another process holds the place, and goes on doing so for longer than the
//   lease of one that has died;
// - FAILED_PRECONDITION if the run was over before the process came, or the coordinator refuses it;
// - DEADLINE_EXCEEDED if etcd was away for too long;
// - the reason for which the run has failed. A run that succeeds ends nobody.
class EtcdLink final : public ViewLink, private EtcdMachine {
 public:
  struct Options {
    std::shared_ptr<EtcdRuntime> etcd;
    std::string run;          // recovery.etcd.run
    absl::Duration ttl;       // whole seconds, at least EtcdLease::kShortestTtl
    absl::Duration startup;   // how long etcd may be away at first
    absl::Duration patience;  // and later
  };
  // REQUIRES: recovery.etcd is present.
  static Options OptionsOf(const ClusterConfig& config, std::shared_ptr<EtcdRuntime> etcd);

  explicit EtcdLink(const Options& options);
  // Gives up the process's place, so that others get its roles at once. Blocks for a few seconds at
  // most. REQUIRES: the process answers nobody any more.
  ~EtcdLink() override;

  void Start(Listener listener) override;
  void Announce(const ProcessState& state) override;
  bool HoldsRoles() const override;

 private:
  // Another process that holds the place.
  struct Holder {
    int64_t create_revision = 0;  // of its key
    absl::Time since;             // when this link first met it
  };

  // Takes the place if it is free, and then delivers what is announced.
  Step Next(absl::Time now) override;
  void Answered(const EtcdAnswer& answer, absl::Time now) override;
  // Ends the link if the lease has ended, or etcd was away for too long.
  void CheckLease(absl::Time now);
  etcdserverpb::TxnRequest Claim() const;
  etcdserverpb::TxnRequest Delivery() const;
  absl::Status Claimed(const etcdserverpb::TxnResponse& response, absl::Time now);
  absl::Status Undelivered(const etcdserverpb::TxnResponse& response);
  // Whether the place is this process's, as one of its requests without an answer has left it.
  bool Holds(const mvccpb::KeyValue* place);
  void AwaitHolder(const mvccpb::KeyValue& held, absl::Time now);
  std::optional<ProcessState> state() const;

  // Take what the watch brings.
  void TakeKey(const mvccpb::KeyValue& key);
  void TakeView(const mvccpb::KeyValue& key);

  // The refusal of a process that comes after the end of the run.
  absl::Status IsOver(const Verdict& verdict) const;
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(delivery_mutex_);

  // Constant after construction or Start.
  const Options options_;
  const EtcdKeys keys_;
  Listener listener_;

  // Thread-safe.
  std::unique_ptr<EtcdRunner> runner_;
  std::atomic<bool> holds_place_{false};
  std::atomic<bool> ended_{false};

  // Held while the listener is called.
  absl::Mutex delivery_mutex_ ABSL_ACQUIRED_BEFORE(state_mutex_);
  uint64_t latest_view_ ABSL_GUARDED_BY(delivery_mutex_) = 0;

  mutable absl::Mutex state_mutex_;
  std::optional<ProcessState> state_ ABSL_GUARDED_BY(state_mutex_);

  // The runner's.
  ProcessState asked_;                              // what the request under way says
  std::string delivered_;                           // the state that etcd has, serialised
  int64_t delivered_at_ = 0;                        // etcd's revision that brought it
  absl::Time paused_until_ = absl::InfinitePast();  // after a request that had no success
  Holder holder_;

  // Destroyed first, because their runners use the other members.
  std::unique_ptr<EtcdLease> lease_;
  std::unique_ptr<EtcdWatch> watch_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_LINK_H_
