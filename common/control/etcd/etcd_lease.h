#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_LEASE_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_LEASE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_machine.h"
#include "proto/config.pb.h"

namespace evenshard {

// A lease in etcd, which is acquired and renewed until it is destroyed. While etcd is away this
// goes on trying. The keys that are attached to the lease are deleted when it ends. Thread-safe.
//
// Surely() is what makes a lease a fence: once it is false, it stays so until etcd has confirmed
// the lease once more, and etcd ends no lease for which it is true, provided that
// - this process's monotonic clock and those of etcd's members run at rates that differ by less
//   than a quarter, and do not stop, as they do in a machine that is suspended;
// - etcd keeps a lease for its TTL after it has confirmed a renewal, also across its own restarts
//   and changes of its leader. Both extend leases.
// A renewal counts from the moment at which it was sent, so that a late answer only makes the lease
// shorter.
class EtcdLease final : private EtcdMachine {
 public:
  struct Options {
    EtcdRuntime* etcd = nullptr;  // must outlive the lease
    absl::Duration ttl;           // whole seconds, at least kShortestTtl
    // Called by the lease's runner after a change of what the methods below return, except for
    // Surely(), which becomes false silently. Must not block.
    std::function<void()> on_change = [] {};
  };

  // etcd grants no shorter one with its default settings.
  static constexpr absl::Duration kShortestTtl = absl::Seconds(2);
  // That of the leases of a run: silence_seconds, as far as etcd can.
  static absl::Duration TtlOf(const Recovery& recovery);

  explicit EtcdLease(const Options& options);
  // Ends the lease, so that its keys are deleted, in a few seconds at most.
  ~EtcdLease() override;

  // 0 until etcd has granted the lease.
  int64_t id() const;
  // Whether etcd has said that the lease has ended. There is no way back.
  bool HasEnded() const;
  // Whether the lease has surely not ended.
  bool Surely() const;
  // When etcd last confirmed the lease; before, when this object was made.
  absl::Time confirmed() const;
  // Why the last attempt to acquire or renew the lease has failed, or OK.
  absl::Status trouble() const;

 private:
  Step Next(absl::Time now) override;
  void Answered(const EtcdAnswer& answer, absl::Time now) override;
  void Failed(const absl::Status& trouble, absl::Time now);

  const Options options_;

  // The runner's.
  absl::Time sent_;                         // the request that is under way
  absl::Time next_ = absl::InfinitePast();  // when to acquire or renew the lease

  mutable absl::Mutex mutex_;
  int64_t id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time confirmed_ ABSL_GUARDED_BY(mutex_);
  absl::Time sure_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status trouble_ ABSL_GUARDED_BY(mutex_);

  const std::unique_ptr<EtcdRunner> runner_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_LEASE_H_
