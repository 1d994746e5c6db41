#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_THREADS_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_THREADS_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/control/etcd/etcd_client.h"
#include "common/control/etcd/etcd_machine.h"
#include "proto/config.pb.h"

namespace evenshard {

// Runs each machine by a thread of its own, which makes the calls of an EtcdClient. Wakes are few:
// the thread sleeps between them by the clock.
class EtcdThreads final : public EtcdRuntime {
 public:
  // `clock` must outlive this.
  EtcdThreads(const EtcdClient::Options& options, const Clock* clock)
      : client_(options), clock_(*clock) {}
  // With what the config says of etcd. REQUIRES: recovery.etcd is present.
  static std::shared_ptr<EtcdThreads> Of(const ClusterConfig& config, const Clock* clock);

  std::unique_ptr<EtcdRunner> MakeRunner(EtcdMachine* machine) override;
  std::unique_ptr<EtcdWatchStream> Watch(const etcdserverpb::WatchCreateRequest& request,
                                         std::function<void()> on_news) override {
    return client_.Watch(request, std::move(on_news));
  }
  absl::Status Revoke(int64_t lease) override { return client_.Revoke(lease, std::stop_token()); }
  absl::Duration timeout() const override { return client_.timeout(); }
  const Clock& clock() const override { return clock_; }

 private:
  EtcdClient client_;
  const Clock& clock_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_THREADS_H_
