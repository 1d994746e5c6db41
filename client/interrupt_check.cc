#include "client/interrupt_check.h"

#include <atomic>
#include <chrono>
#include <future>

namespace evenshard {
namespace {

constexpr std::chrono::milliseconds kCheckPeriod(100);

std::atomic<int (*)()> interrupt_check{nullptr};

}  // namespace

void SetInterruptCheck(int (*check)()) { interrupt_check = check; }

bool HasInterruptCheck() { return interrupt_check != nullptr; }

bool AskInterruptCheck() {
  int (*const check)() = interrupt_check;
  return check != nullptr && check() != 0;
}

absl::Status RunAside(absl::FunctionRef<absl::Status()> call, absl::FunctionRef<void()> meanwhile) {
  std::future<absl::Status> result = std::async(std::launch::async, [&] { return call(); });
  while (result.wait_for(kCheckPeriod) != std::future_status::ready) {
    meanwhile();
  }
  return result.get();
}

absl::Status RunInterruptibly(absl::FunctionRef<absl::Status()> call,
                              absl::FunctionRef<void()> interrupt) {
  if (!HasInterruptCheck()) return call();
  return RunAside(call, [&] {
    if (AskInterruptCheck()) interrupt();
  });
}

}  // namespace evenshard
