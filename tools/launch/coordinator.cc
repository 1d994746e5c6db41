#include "tools/launch/coordinator.h"

#include <stdlib.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/net/status_conversion.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace evenshard {

// One process's stream. gRPC destroys it through OnDone.
class CoordinatorServer::Stream final : public grpc::ServerBidiReactor<ProcessState, View>,
                                        public Follower {
 public:
  explicit Stream(CoordinatorServer* coordinator) : coordinator_(*coordinator) {
    coordinator_.streams_.Add();
    StartRead(&state_);
  }

  void Send(const View& view) override {
    absl::MutexLock lock(&mutex_);
    next_ = view;
    SendNext();
  }

  void OnReadDone(bool ok) override {
    const absl::Status status = ok ? coordinator_.Heard(this, state_) : absl::OkStatus();
    if (ok && status.ok()) {
      StartRead(&state_);
    } else {
      End(ToGrpc(status));
    }
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writes_ = false;
    if (end_.has_value()) {
      Finish(*end_);
    } else if (ok) {
      SendNext();
    }
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    coordinator_.Forget(this);
    PendingCount& streams = coordinator_.streams_;
    delete this;
    streams.Remove();
  }

 private:
  void SendNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writes_ || end_.has_value() || !next_.has_value()) return;
    written_ = *std::exchange(next_, std::nullopt);
    writes_ = true;
    StartWrite(&written_);
  }

  void End(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    end_ = status;
    if (!writes_) Finish(status);
  }

  CoordinatorServer& coordinator_;
  ProcessState state_;  // one read at a time

  absl::Mutex mutex_;
  std::optional<View> next_ ABSL_GUARDED_BY(mutex_);
  View written_ ABSL_GUARDED_BY(mutex_);
  bool writes_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    ViewCoordinator::Settings settings, ViewCoordinator::NewestCheckpoint newest_checkpoint,
    const Clock* clock) {
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error) / "evenshard-XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(error ? error.value() : errno,
                               absl::StrCat("cannot make a folder like ", folder));
  }
  std::unique_ptr<CoordinatorServer> coordinator(
      new CoordinatorServer(std::move(settings), std::move(newest_checkpoint), clock, folder));
  grpc::ServerBuilder builder;
  builder.AddListeningPort(coordinator->address_, grpc::InsecureServerCredentials());
  builder.RegisterService(static_cast<Coordinator::CallbackService*>(coordinator.get()));
  coordinator->server_ = builder.BuildAndStart();
  if (coordinator->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", coordinator->address_));
  }
  return coordinator;
}

CoordinatorServer::CoordinatorServer(ViewCoordinator::Settings settings,
                                     ViewCoordinator::NewestCheckpoint newest_checkpoint,
                                     const Clock* clock, std::string folder)
    : LaunchCoordinator(std::move(settings), std::move(newest_checkpoint), clock),
      folder_(std::move(folder)),
      address_(absl::StrCat("unix:", folder_, "/coordinator")) {}

CoordinatorServer::~CoordinatorServer() {
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now());  // cancels the streams
    server_->Wait();
    streams_.AwaitZero();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

grpc::ServerBidiReactor<ProcessState, View>* CoordinatorServer::Follow(
    grpc::CallbackServerContext* context) {
  return new Stream(this);
}

}  // namespace evenshard
