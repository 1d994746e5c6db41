#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/control/view/coordinator_link.h"
#include "tests/common/control/conformance/view_bench.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tools/launch/coordinator.h"

namespace evenshard {
namespace {

ProcessRole ToRole(BenchRole role) { return {role.is_worker, role.index}; }
BenchRole ToBench(const ProcessRole& role) { return {role.is_worker, role.index}; }

// Launch's coordinator, and what its supervisor does: it ends what is silent.
class LaunchBench final : public ViewBench {
 public:
  explicit LaunchBench(const ViewCoordinator::Settings& settings) {
    auto coordinator = CoordinatorServer::Start(
        settings, [](bool) { return std::nullopt; }, &clock_);
    REQUIRE(coordinator.ok());
    coordinator_ = *std::move(coordinator);
    *config_.mutable_recovery() = settings.recovery;
    config_.mutable_limits()->set_startup_seconds(60);
    supervisor_ = std::jthread([this](const std::stop_token& stop) { Supervise(stop); });
  }

  std::unique_ptr<ViewLink> Connect(BenchRole role) override {
    {
      absl::MutexLock lock(&mutex_);
      dead_.erase(role);
    }
    coordinator_->Started(ToRole(role));
    std::unique_ptr<TcpProxy>& way = ways_[role];
    way = std::make_unique<TcpProxy>(
        0, std::string(absl::StripPrefix(coordinator_->address(), "unix:")));
    way->Delay(delay_);
    return std::make_unique<CoordinatorLink>(way->endpoint(), config_, &clock_);
  }

  void Cut(BenchRole role) override { ways_.at(role)->Hold(); }
  void Mend(BenchRole role) override { ways_.at(role)->Release(); }
  bool Lives(BenchRole role) const override {
    absl::MutexLock lock(&mutex_);
    return !dead_.contains(role);
  }
  absl::Status Failure() const override { return coordinator_->failure(); }
  void Died(BenchRole role) override {
    ways_.erase(role);
    {
      absl::MutexLock lock(&mutex_);
      if (!dead_.insert(role).second) return;
    }
    coordinator_->Ended(ToRole(role), "was killed by SIGKILL", true, false);
  }

  void SlowDown(absl::Duration delay) override { delay_ = delay; }

  // Its end is the end of the run.
  bool CanGoAway() const override { return false; }
  void TakeAway() override {}
  void BringBack() override {}

  std::optional<BenchRole> Coordinator() const override { return std::nullopt; }

 private:
  void Supervise(const std::stop_token& stop) {
    while (clock_.SleepUntil(clock_.Now() + RecoveryHost::kPollPeriod, stop)) {
      for (const ProcessRole& role : coordinator_->Poll().kill) {
        {
          absl::MutexLock lock(&mutex_);
          dead_.insert(ToBench(role));
        }
        coordinator_->Ended(role, "was killed by SIGKILL", true, false);
      }
    }
  }

  const RealClock clock_;
  ClusterConfig config_;
  std::unique_ptr<CoordinatorServer> coordinator_;
  absl::Duration delay_;
  std::map<BenchRole, std::unique_ptr<TcpProxy>> ways_;

  mutable absl::Mutex mutex_;
  std::set<BenchRole> dead_ ABSL_GUARDED_BY(mutex_);

  std::jthread supervisor_;  // destroyed first, because it uses the other members
};

}  // namespace

std::unique_ptr<ViewBench> MakeViewBench(const ViewCoordinator::Settings& settings) {
  return std::make_unique<LaunchBench>(settings);
}

}  // namespace evenshard
