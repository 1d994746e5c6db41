#include "common/control/view/coordinator_link.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "grpcpp/grpcpp.h"
#include "tests/testing/await.h"
#include "tests/testing/hand_clock.h"
#include "tests/testing/thread_check.h"

namespace evenshard {
namespace {

// Counts what each worker says.
class CountingCoordinator final : public Coordinator::Service {
 public:
  CountingCoordinator() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~CountingCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int heard(uint32_t worker) const {
    absl::MutexLock lock(&mutex_);
    const auto found = heard_.find(worker);
    return found == heard_.end() ? 0 : found->second;
  }

 private:
  grpc::Status Follow(grpc::ServerContext*,
                      grpc::ServerReaderWriter<View, ProcessState>* stream) override {
    ProcessState state;
    while (stream->Read(&state)) {
      absl::MutexLock lock(&mutex_);
      ++heard_[state.worker()];
    }
    return grpc::Status::OK;
  }

  int port_ = 0;
  mutable absl::Mutex mutex_;
  std::map<uint32_t, int> heard_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

ClusterConfig Config() {
  ClusterConfig config;
  config.mutable_recovery()->set_silence_seconds(0.1);  // a heartbeat each 20 ms
  config.mutable_limits()->set_startup_seconds(3600);
  return config;
}

ProcessState Worker(uint32_t rank) {
  ProcessState state;
  state.set_worker(rank);
  return state;
}

}  // namespace

TEST_CASE("a link beats by its clock and not by the time of day") {
  CountingCoordinator coordinator;
  const HandClock stands;
  HandClock moved;
  const RealClock runs;
  CoordinatorLink first(coordinator.address(), Config(), &stands);
  CoordinatorLink second(coordinator.address(), Config(), &moved);
  CoordinatorLink third(coordinator.address(), Config(), &runs);
  uint32_t rank = 0;
  for (CoordinatorLink* link : {&first, &second, &third}) {
    link->Start({.on_view = [](const View&) {}, .on_end = [](const absl::Status&) {}});
    link->Announce(Worker(rank++));
  }
  AwaitTrue([&] { return coordinator.heard(0) == 1 && coordinator.heard(1) == 1; });
  for (int beat = 2; beat <= 10; ++beat) {
    moved.Advance(absl::Milliseconds(20));
    AwaitTrue([&] { return coordinator.heard(1) == beat; });
  }
  AwaitTrue([&] { return coordinator.heard(2) >= 10; });
  CHECK(coordinator.heard(0) == 1);
  CHECK(coordinator.heard(1) == 10);
}

TEST_CASE("a link waits for its coordinator by its clock") {
  HandClock clock;
  absl::Notification ended;
  CoordinatorLink link("127.0.0.1:1", Config(), &clock);
  link.Start({.on_view = [](const View&) {},
              .on_end =
                  [&](const absl::Status& reason) {
                    ThreadCheck(absl::IsUnavailable(reason));
                    ended.Notify();
                  }});
  link.Announce(Worker(0));
  AwaitTrue([&] {
    clock.Advance(absl::Minutes(10));
    return ended.HasBeenNotified();
  });
}

}  // namespace evenshard
