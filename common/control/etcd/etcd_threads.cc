#include "common/control/etcd/etcd_threads.h"

#include <algorithm>
#include <stop_token>
#include <thread>
#include <variant>

#include "common/base/status_macros.h"
#include "common/base/wakeup.h"
#include "common/control/etcd/etcd_lease.h"

namespace evenshard {
namespace {

class Thread final : public EtcdRunner {
 public:
  Thread(EtcdClient* client, const Clock& clock, EtcdMachine* machine)
      : client_(*client), clock_(clock), machine_(*machine) {}
  ~Thread() override { Thread::Stop(); }

  void Start() override {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }
  void Stop() override {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  void Wake() override { wakeup_.Wake(); }

 private:
  EtcdAnswer Ask(const etcdserverpb::RangeRequest& request, const std::stop_token& stop) {
    return client_.Range(request, stop);
  }
  EtcdAnswer Ask(const etcdserverpb::TxnRequest& request, const std::stop_token& stop) {
    return client_.Txn(request, stop);
  }
  EtcdAnswer Ask(const EtcdLeaseRequest& request, const std::stop_token& stop) {
    if (request.id != 0) {
      RETURN_IF_ERROR(client_.KeepAlive(request.id, stop));
      return request.id;
    }
    ASSIGN_OR_RETURN(const etcdserverpb::LeaseGrantResponse granted,
                     client_.Grant(request.ttl, stop));
    return granted.id();
  }

  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const EtcdMachine::Step step = machine_.Next(clock_.Now());
      if (const auto* until = std::get_if<absl::Time>(&step)) {
        wakeup_.SleepUntil(clock_, *until, stop);
        continue;
      }
      const EtcdAnswer answer = std::visit([&](const auto& request) { return Ask(request, stop); },
                                           std::get<EtcdRequest>(step));
      if (!absl::IsCancelled(answer.status())) machine_.Answered(answer, clock_.Now());
    }
  }

  EtcdClient& client_;
  const Clock& clock_;
  EtcdMachine& machine_;
  Wakeup wakeup_;
  std::jthread thread_;
};

}  // namespace

std::shared_ptr<EtcdThreads> EtcdThreads::Of(const ClusterConfig& config, const Clock* clock) {
  const auto& endpoints = config.recovery().etcd().endpoint();
  const absl::Duration part = EtcdLease::TtlOf(config.recovery()) / 5;
  return std::make_shared<EtcdThreads>(
      EtcdClient::Options{.endpoints = {endpoints.begin(), endpoints.end()},
                          .access = config.recovery().etcd(),
                          .timeout = std::clamp(part, absl::Milliseconds(500), absl::Seconds(1))},
      clock);
}

std::unique_ptr<EtcdRunner> EtcdThreads::MakeRunner(EtcdMachine* machine) {
  return std::make_unique<Thread>(&client_, clock_, machine);
}

}  // namespace evenshard
