#include "tools/launch/coordinator.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/net/status_conversion.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace evenshard {
namespace {

ProcessRole RoleOf(const ProcessState& state) {
  const bool is_worker = state.role_case() == ProcessState::kWorker;
  return {is_worker, is_worker ? state.worker() : state.ps()};
}

// How long the workers wait for a view that some shard has not confirmed.
constexpr absl::Duration kShardsFirst = absl::Milliseconds(100);

}  // namespace

// One process's stream. gRPC destroys it through OnDone.
class CoordinatorServer::Follower final : public grpc::ServerBidiReactor<ProcessState, View> {
 public:
  explicit Follower(CoordinatorServer* coordinator) : coordinator_(*coordinator) {
    StartRead(&state_);
  }

  bool is_worker = false;  // guarded by the coordinator's lock

  // Sends a view, or the latest one as soon as the one before has been sent.
  void Send(const View& view) {
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
    delete this;
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
    : recovery_(settings.recovery),
      silence_(absl::Seconds(settings.recovery.silence_seconds())),
      config_fingerprint_(settings.config_fingerprint),
      clock_(*clock),
      folder_(std::move(folder)),
      address_(absl::StrCat("unix:", folder_, "/coordinator")),
      coordinator_(std::move(settings), std::move(newest_checkpoint)) {}

CoordinatorServer::~CoordinatorServer() {
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now());  // cancels the streams
    server_->Wait();
    absl::MutexLock lock(&mutex_);
    const auto has_none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return streams_ == 0; };
    mutex_.Await(absl::Condition(&has_none));
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

View CoordinatorServer::view() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.view();
}

grpc::ServerBidiReactor<ProcessState, View>* CoordinatorServer::Follow(
    grpc::CallbackServerContext* context) {
  absl::MutexLock lock(&mutex_);
  ++streams_;
  return new Follower(this);
}

absl::Status CoordinatorServer::Heard(Follower* follower, const ProcessState& state) {
  absl::MutexLock lock(&mutex_);
  const ProcessRole role = RoleOf(state);
  const auto place = places_.find(role);
  // What a process has said before it ended may arrive afterwards.
  if (place != places_.end() && !place->second.runs) {
    return absl::FailedPreconditionError("this process has ended");
  }
  const absl::Time now = clock_.Now();
  if (absl::Status status = coordinator_.Seen(state, now); !status.ok()) return status;
  if (place != places_.end()) {
    place->second.state = state;
    place->second.heard = now;
  }
  if (followers_.insert(follower).second) {
    follower->is_worker = role.is_worker;
    if (coordinator_.view().number() > 0) follower->Send(coordinator_.view());
  }
  Publish();
  return absl::OkStatus();
}

void CoordinatorServer::Forget(Follower* follower) {
  absl::MutexLock lock(&mutex_);
  followers_.erase(follower);
  --streams_;
}

void CoordinatorServer::Publish() {
  const View& view = coordinator_.view();
  const auto send = [&](bool to_workers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (Follower* follower : followers_) {
      if (follower->is_worker == to_workers) follower->Send(view);
    }
  };
  if (published_ != view.number()) {
    published_ = view.number();
    published_at_ = clock_.Now();
    send(/*to_workers=*/false);
  }
  if (worker_view_ == published_) return;
  if (!ShardsFollow() && clock_.Now() < published_at_ + kShardsFirst) return;
  worker_view_ = published_;
  send(/*to_workers=*/true);
}

bool CoordinatorServer::ShardsFollow() const {
  const auto follows = [this](const ProcessId& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto place = places_.find({.is_worker = false, .index = process.process()});
    return process.incarnation() == 0 || place == places_.end() ||
           place->second.state.view() >= published_;
  };
  for (const SlotView& slot : coordinator_.view().slot()) {
    if (!follows(slot.primary()) || !follows(slot.replica())) return false;
  }
  return true;
}

void CoordinatorServer::Started(ProcessRole role) {
  absl::MutexLock lock(&mutex_);
  places_[role] = {.runs = true};
}

RecoveryHost::Verdict CoordinatorServer::Ended(ProcessRole role, absl::string_view reason,
                                               bool by_signal, bool success) {
  absl::MutexLock lock(&mutex_);
  Place& place = places_[role];
  const absl::Time now = clock_.Now();
  place.runs = false;
  const bool had_finished = HasFinished(role, place);
  if (place.ordered_killed) {
    Gone(role,
         absl::StrCat("was silent for ", FormatSeconds(recovery_.silence_seconds()),
                      " and was killed"),
         place.heard);
  } else {
    Gone(role, reason, now);
  }
  Publish();
  if (!coordinator_.failure().ok()) return Verdict::kFailure;
  if (!role.is_worker) {
    const bool recovers = recovery_.replicas() > 0 || recovery_.has_checkpoint();
    return recovers ? Verdict::kRestart : Verdict::kFailure;
  }
  const bool fails =
      !success && (had_finished ? !by_signal : recovery_.worker_loss() == Recovery::FAIL);
  if (coordinator_.finished()) {
    return had_finished && fails ? Verdict::kFailure : Verdict::kDone;
  }
  // A worker that has never been heard of succeeds by itself.
  if (success && coordinator_.view().number() == 0) return Verdict::kDone;
  // One that had finished waits for the end in its successor too, since the run may go back.
  return fails ? Verdict::kFailure : Verdict::kRestart;
}

bool CoordinatorServer::HasFinished(ProcessRole role, const Place& place) const {
  if (!role.is_worker || coordinator_.view().number() == 0) return false;
  const WorkerView& worker = coordinator_.view().worker(static_cast<int>(role.index));
  return worker.state() == WorkerView::FINISHED &&
         worker.incarnation() == place.state.incarnation();
}

void CoordinatorServer::Gone(ProcessRole role, absl::string_view reason, absl::Time since) {
  const uint64_t incarnation = places_[role].state.incarnation();
  if (incarnation == 0) return;
  if (role.is_worker) {
    coordinator_.Gone(ViewCoordinator::Worker{role.index, incarnation}, reason, since,
                      clock_.Now());
  } else {
    coordinator_.Gone(ViewCoordinator::PsProcess{role.index, incarnation}, reason, since,
                      clock_.Now());
  }
}

absl::Status CoordinatorServer::failure() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.failure();
}

RecoveryHost::Orders CoordinatorServer::Poll() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  coordinator_.Tick(now);
  Publish();
  Orders orders;
  orders.events = coordinator_.TakeEvents();
  orders.finished = coordinator_.finished();
  // If this process could not run for a while, it has not heard what the others said.
  const bool was_away = polled_ != absl::InfinitePast() && now > polled_ + silence_ / 2;
  polled_ = now;
  for (auto& [role, place] : places_) {
    if (was_away) place.heard = std::max(place.heard, now);
    if (place.runs && place.state.incarnation() != 0 && !place.ordered_killed &&
        now > place.heard + silence_) {
      place.ordered_killed = true;
      orders.kill.push_back(role);
    }
    if (orders.finished && role.is_worker && place.runs && !HasFinished(role, place)) {
      orders.end.push_back(role);
    }
  }
  return orders;
}

}  // namespace evenshard
