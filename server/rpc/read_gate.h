#ifndef EVENSHARD_SERVER_RPC_READ_GATE_H_
#define EVENSHARD_SERVER_RPC_READ_GATE_H_

#include <cstddef>

#include "absl/time/time.h"

namespace evenshard {

// Decides when an exchange stream reads its next push, which bounds what the shard keeps for the
// stream: flow control stops a worker whose stream is not read. The caller reports what the shard
// keeps and calls Next after every change. Not thread-safe.
class ReadGate {
 public:
  struct Limits {
    // Bytes of gradients that were received and are not yet in an update.
    size_t held_bytes;
    // Replies that are not yet sent, and also queued pushes of shared memory.
    size_t waiting;
  };

  explicit ReadGate(const Limits& limits) : limits_(limits) {}

  // The push that was read has been handed to the shard or queued.
  void ReadDone() { reading_ = false; }
  // The stream reads no more.
  void Close() { closed_ = true; }

  void Hold(size_t bytes) { held_bytes_ += bytes; }
  void Release(size_t bytes) { held_bytes_ -= bytes; }
  void QueuePushes(size_t count) { queued_pushes_ += count; }
  void TakePushes(size_t count) { queued_pushes_ -= count; }
  void SetReplies(size_t waiting) { replies_ = waiting; }
  // Whether so many replies stop the stream. They go then, although the worker asks to hold them:
  // the push that lets them go comes on the same stream.
  bool IsStoppedBy(size_t replies) const { return replies > limits_.waiting; }

  enum class Action {
    kRead,      // start a read; the gate counts it as under way until ReadDone
    kSetTimer,  // after `pace`, call TimerRang and then Next; the gate counts the timer as set
    kWait,      // call Next after the next change
  };
  // Returns what the stream should do now. `pace` is how long to leave the stream unread because
  // its worker is ahead of others, or zero.
  Action Next(absl::Duration pace) {
    if (reading_ || closed_ || timer_set_ || held_bytes_ > limits_.held_bytes ||
        IsStoppedBy(replies_) || queued_pushes_ > limits_.waiting) {
      return Action::kWait;
    }
    const bool waits = pace > absl::ZeroDuration();
    (waits ? timer_set_ : reading_) = true;
    return waits ? Action::kSetTimer : Action::kRead;
  }
  void TimerRang() { timer_set_ = false; }
  bool timer_set() const { return timer_set_; }

 private:
  const Limits limits_;
  bool reading_ = true;  // the stream starts its first read without asking
  bool closed_ = false;
  bool timer_set_ = false;
  size_t held_bytes_ = 0;
  size_t queued_pushes_ = 0;
  size_t replies_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_READ_GATE_H_
