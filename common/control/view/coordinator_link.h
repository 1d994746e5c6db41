#ifndef EVENSHARD_COMMON_CONTROL_VIEW_COORDINATOR_LINK_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_COORDINATOR_LINK_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/pending_count.h"
#include "common/base/wakeup.h"
#include "common/control/view/view_link.h"
#include "proto/config.pb.h"
#include "proto/coordinator.grpc.pb.h"

namespace evenshard {

// Follows the views of the coordinator at `--coordinator=ADDRESS` (proto/coordinator.proto), and
// connects again after every interruption. Thread-safe.
//
// A process that runs always holds its roles, because the coordinator ends a process before it
// gives the process's roles away.
class CoordinatorLink final : public ViewLink {
 public:
  // `address` is "unix:PATH" or "HOST:PORT". If the coordinator cannot be reached for
  // limits.startup_seconds, the link ends. `clock` must outlive the link.
  CoordinatorLink(const std::string& address, const ClusterConfig& config, const Clock* clock);
  // Delivers the latest state if that is possible within a second. No listener is called any more.
  // Not to be called by a listener.
  ~CoordinatorLink() override;

  void Start(Listener listener) override;
  void Announce(const ProcessState& state) override;
  bool HoldsRoles() const override { return true; }

 private:
  void Run(const Listener& listener, const std::stop_token& stop);
  absl::Status Follow(const Listener& listener, const std::stop_token& stop);
  bool AwaitWork(absl::Time heartbeat, const std::stop_token& stop);

  const Clock& clock_;
  const absl::Duration heartbeat_;
  const absl::Duration patience_;
  const std::string address_;
  const std::unique_ptr<Coordinator::Stub> stub_;
  Wakeup wakeup_;         // of Run
  PendingCount running_;  // 1 while Run does

  absl::Mutex mutex_;
  ProcessState state_ ABSL_GUARDED_BY(mutex_);
  bool has_state_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_delivered_ ABSL_GUARDED_BY(mutex_) = false;               // state_, on the present stream
  bool is_broken_ ABSL_GUARDED_BY(mutex_) = false;                  // the present stream
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the present stream

  uint64_t number_ = 0;     // of the latest view; one thread at a time uses it
  bool was_heard_ = false;  // whether the present stream has brought a view; likewise
  std::jthread thread_;     // destroyed first, because it uses the other members
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_COORDINATOR_LINK_H_
