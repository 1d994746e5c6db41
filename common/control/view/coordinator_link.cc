#include "common/control/view/coordinator_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/status_conversion.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace evenshard {
namespace {

constexpr absl::Duration kLongestHeartbeat = absl::Seconds(1);
constexpr absl::Duration kRetry = absl::Milliseconds(100);
// How long the last state may take to be delivered.
constexpr absl::Duration kFarewell = absl::Seconds(1);

// A view holds the history of the worker set, which has a bound
// (common/control/view/worker_set_coordinator.cc).
constexpr int kMostViewBytes = 64 << 20;

std::shared_ptr<grpc::Channel> CreateLinkChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostViewBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// Whether the coordinator has said that this process does not belong to the run.
bool IsFinal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

CoordinatorLink::CoordinatorLink(const std::string& address, const ClusterConfig& config)
    : heartbeat_(
          std::min(absl::Seconds(config.recovery().silence_seconds()) / 5, kLongestHeartbeat)),
      patience_(absl::Seconds(config.limits().startup_seconds())),
      stub_(Coordinator::NewStub(CreateLinkChannel(address))) {}

CoordinatorLink::~CoordinatorLink() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), kFarewell) && context_ != nullptr) {
      context_->TryCancel();
    }
  }
  thread_.join();
}

void CoordinatorLink::Start(Listener listener) {
  thread_ = std::thread([this, listener = std::move(listener)] { Run(listener); });
}

void CoordinatorLink::Announce(const ProcessState& state) {
  absl::MutexLock lock(&mutex_);
  state_ = state;
  has_state_ = true;
  is_delivered_ = false;
}

void CoordinatorLink::Run(const Listener& listener) {
  absl::Time reached = absl::Now();
  while (true) {
    const absl::Status status = Follow(listener);
    if (std::exchange(was_heard_, false)) reached = absl::Now();
    if (!Stops(absl::ZeroDuration())) {
      if (IsFinal(status)) {
        listener.on_end(status);
      } else if (absl::Now() > reached + patience_) {
        listener.on_end(absl::UnavailableError(
            absl::StrCat("the run has no coordinator any more: ", status.message())));
      } else if (!Stops(kRetry)) {
        continue;
      }
    }
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    return;
  }
}

// Waits at most so long for the destructor. Returns whether it has begun.
bool CoordinatorLink::Stops(absl::Duration wait) {
  absl::MutexLock lock(&mutex_);
  const auto stops = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_; };
  return mutex_.AwaitWithTimeout(absl::Condition(&stops), wait);
}

// Keeps one stream until it ends, and returns why.
absl::Status CoordinatorLink::Follow(const Listener& listener) {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError();
    context_ = &context;
    is_broken_ = is_delivered_ = false;
  }
  const auto stream = stub_->Follow(&context);
  std::thread reader([&] {
    View view;
    while (stream->Read(&view)) {
      was_heard_ = true;
      if (view.number() <= number_) continue;
      number_ = view.number();
      listener.on_view(view);
    }
    absl::MutexLock lock(&mutex_);
    is_broken_ = true;
  });
  absl::Time heartbeat = absl::InfinitePast();
  while (WaitForWork(heartbeat)) {
    ProcessState state;
    {
      absl::MutexLock lock(&mutex_);
      state = state_;
      is_delivered_ = true;
    }
    heartbeat = absl::Now() + heartbeat_;
    if (!stream->Write(state)) break;
  }
  stream->WritesDone();
  reader.join();
  const grpc::Status status = stream->Finish();
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  return FromGrpc(status);
}

// Waits until the state is to be sent, and returns false if the stream has ended or is to end.
bool CoordinatorLink::WaitForWork(absl::Time heartbeat) {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_broken_ || stopping_ || (has_state_ && !is_delivered_);
  };
  const absl::Time until = has_state_ ? heartbeat : absl::InfiniteFuture();
  mutex_.AwaitWithDeadline(absl::Condition(&has_work), until);
  if (is_broken_) return false;
  return stopping_ ? has_state_ && !is_delivered_ : true;
}

}  // namespace evenshard
