#include "client/interrupt_check.h"

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace evenshard {
namespace {

constexpr absl::Duration kCheckPeriod = absl::Milliseconds(100);

std::atomic<int (*)()> interrupt_check{nullptr};

}  // namespace

void SetInterruptCheck(int (*check)()) { interrupt_check = check; }

bool AskInterruptCheck() {
  int (*const check)() = interrupt_check;
  return check != nullptr && check() != 0;
}

absl::Status RunAside(absl::FunctionRef<absl::Status()> call, absl::FunctionRef<void()> interrupt) {
  if (interrupt_check == nullptr) return call();
  absl::Status result;
  absl::Notification done;
  std::thread thread([&] {
    result = call();
    done.Notify();
  });
  while (!done.WaitForNotificationWithTimeout(kCheckPeriod)) {
    if (AskInterruptCheck()) interrupt();
  }
  thread.join();
  return result;
}

}  // namespace evenshard
