#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/control/etcd/etcd_coordinator.h"
#include "common/control/etcd/etcd_link.h"
#include "common/control/etcd/etcd_threads.h"
#include "tests/common/control/conformance/view_bench.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/common/control/etcd/tcp_proxy.h"

namespace evenshard {
namespace {

// A real etcd. Each process reaches it over a way of its own, and every ps can make the views.
class EtcdBench final : public ViewBench {
 public:
  explicit EtcdBench(const ViewCoordinator::Settings& settings) : settings_(settings) {}

  std::unique_ptr<ViewLink> Connect(BenchRole role) override {
    Process& process = processes_[role];
    process.way = std::make_unique<TcpProxy>(server_.port());
    process.way->Delay(delay_);
    const auto etcd =
        std::make_shared<EtcdThreads>(EtcdClient::Options{.endpoints = {process.way->endpoint()},
                                                          .timeout = absl::Milliseconds(500)},
                                      &clock_);
    const absl::Duration ttl = absl::Seconds(settings_.recovery.silence_seconds());
    if (!role.is_worker) {
      process.coordinator = std::make_unique<EtcdCoordinator>(EtcdCoordinator::Options{
          .etcd = etcd,
          .run = kRun,
          .ttl = ttl,
          .name = absl::StrCat("ps ", role.index),
          .settings = settings_,
      });
    }
    return std::make_unique<EtcdLink>(EtcdLink::Options{.etcd = etcd,
                                                        .run = kRun,
                                                        .ttl = ttl,
                                                        .startup = absl::Seconds(60),
                                                        .patience = absl::Seconds(60)});
  }

  void Cut(BenchRole role) override { processes_.at(role).way->Hold(); }
  void Mend(BenchRole role) override { processes_.at(role).way->Release(); }
  bool Lives(BenchRole role) const override { return true; }
  absl::Status Failure() const override { return absl::OkStatus(); }
  void Died(BenchRole role) override { processes_.erase(role); }

  void SlowDown(absl::Duration delay) override { delay_ = delay; }

  bool CanGoAway() const override { return true; }
  void TakeAway() override { server_.Kill(); }
  void BringBack() override { server_.Start(); }

  std::optional<BenchRole> Coordinator() const override {
    for (const auto& [role, process] : processes_) {
      if (process.coordinator != nullptr && process.coordinator->IsElected()) return role;
    }
    return std::nullopt;
  }

 private:
  static constexpr char kRun[] = "conformance";

  struct Process {
    std::unique_ptr<TcpProxy> way;
    std::unique_ptr<EtcdCoordinator> coordinator;
  };

  const ViewCoordinator::Settings settings_;
  const RealClock clock_;
  EtcdServer server_;
  absl::Duration delay_;
  std::map<BenchRole, Process> processes_;
};

}  // namespace

std::unique_ptr<ViewBench> MakeViewBench(const ViewCoordinator::Settings& settings) {
  if (!EtcdServer::IsInstalled()) {
    WARN("etcd is not installed (tools/setup installs it), so this was not tested");
    return nullptr;
  }
  return std::make_unique<EtcdBench>(settings);
}

}  // namespace evenshard
