#include "common/control/view/coordinator_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/net/unix_socket.h"
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
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsPermissionDenied(status);
}

}  // namespace

CoordinatorLink::CoordinatorLink(const std::string& address, const ClusterConfig& config,
                                 const Clock* clock)
    : clock_(*clock),
      heartbeat_(
          std::min(absl::Seconds(config.recovery().silence_seconds()) / 5, kLongestHeartbeat)),
      patience_(absl::Seconds(config.limits().startup_seconds())),
      address_(address),
      stub_(Coordinator::NewStub(CreateLinkChannel(address))) {}

CoordinatorLink::~CoordinatorLink() {
  thread_.request_stop();
  if (running_.AwaitZeroFor(kFarewell)) return;
  absl::MutexLock lock(&mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void CoordinatorLink::Start(Listener listener) {
  running_.Add();
  thread_ = std::jthread(
      [this, listener = std::move(listener)](const std::stop_token& stop) { Run(listener, stop); });
}

void CoordinatorLink::Announce(const ProcessState& state) {
  {
    absl::MutexLock lock(&mutex_);
    state_ = state;
    has_state_ = true;
    is_delivered_ = false;
  }
  wakeup_.Wake();
}

void CoordinatorLink::Run(const Listener& listener, const std::stop_token& stop) {
  absl::Time reached = clock_.Now();
  bool goes_on = true;
  while (goes_on) {
    const absl::Status status = Follow(listener, stop);
    if (std::exchange(was_heard_, false)) reached = clock_.Now();
    goes_on = false;
    if (stop.stop_requested()) break;
    if (IsFinal(status)) {
      listener.on_end(status);
    } else if (clock_.Now() > reached + patience_) {
      listener.on_end(absl::UnavailableError(
          absl::StrCat("the run has no coordinator any more: ", status.message())));
    } else {
      goes_on = clock_.SleepUntil(clock_.Now() + kRetry, stop);
    }
  }
  running_.Remove();
}

// Keeps one stream until it ends, and returns why.
absl::Status CoordinatorLink::Follow(const Listener& listener, const std::stop_token& stop) {
  RETURN_IF_ERROR(CheckUnixPeer(address_));
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (stop.stop_requested()) return absl::CancelledError();
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
    {
      absl::MutexLock lock(&mutex_);
      is_broken_ = true;
    }
    wakeup_.Wake();
  });
  absl::Time heartbeat = absl::InfinitePast();
  while (AwaitWork(heartbeat, stop)) {
    ProcessState state;
    {
      absl::MutexLock lock(&mutex_);
      state = state_;
      is_delivered_ = true;
    }
    heartbeat = clock_.Now() + heartbeat_;
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
bool CoordinatorLink::AwaitWork(absl::Time heartbeat, const std::stop_token& stop) {
  while (true) {
    absl::Time until = absl::InfiniteFuture();
    {
      absl::MutexLock lock(&mutex_);
      if (is_broken_) return false;
      if (has_state_ && !is_delivered_) return true;
      if (stop.stop_requested()) return false;
      if (has_state_) until = heartbeat;
    }
    if (clock_.Now() >= until) return true;
    wakeup_.SleepUntil(clock_, until, stop);
  }
}

}  // namespace evenshard
