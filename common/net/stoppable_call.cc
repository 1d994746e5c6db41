#include "common/net/stoppable_call.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace evenshard {
namespace {

constexpr absl::Duration kStopPeriod = absl::Milliseconds(50);

}  // namespace

grpc::Status StoppableCall(grpc::ClientContext* context,
                           absl::FunctionRef<void(std::function<void(grpc::Status)> done)> start,
                           absl::FunctionRef<bool()> is_stopped) {
  absl::Notification ended;
  grpc::Status outcome;
  start([&](grpc::Status status) {
    outcome = std::move(status);
    ended.Notify();
  });
  while (!ended.WaitForNotificationWithTimeout(kStopPeriod)) {
    if (is_stopped()) context->TryCancel();
  }
  return outcome;
}

}  // namespace evenshard
