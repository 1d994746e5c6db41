#include "server/rpc/read_gate.h"

namespace evenshard {

ReadGate::Action ReadGate::Next(absl::Duration pace) {
  if (reading_ || closed_ || timer_set_ || held_bytes_ > limits_.held_bytes ||
      IsStoppedBy(replies_) || queued_pushes_ > limits_.waiting) {
    return Action::kWait;
  }
  if (pace > absl::ZeroDuration()) {
    timer_set_ = true;
    return Action::kSetTimer;
  }
  reading_ = true;
  return Action::kRead;
}

}  // namespace evenshard
