#ifndef PS_SERVER_READ_GATE_H_
#define PS_SERVER_READ_GATE_H_

#include <cstddef>

#include "absl/time/time.h"

namespace ps {

// Decides when an exchange stream reads its next push, and so bounds what the shard keeps for it:
// flow control stops a worker whose stream is not read. The caller tells what the shard keeps, and
// asks after every change. Not thread-safe.
class ReadGate {
 public:
  struct Limits {
    size_t held_bytes;  // of gradients that were received and are not yet in an update
    size_t waiting;  // replies that are not yet sent; and pushes of shared memory not yet worked on
  };

  explicit ReadGate(const Limits& limits) : limits_(limits) {}

  // A read has come to its end, and what it brought has been dealt with.
  void ReadDone() { reading_ = false; }
  // Nothing is read any more.
  void Close() { closed_ = true; }

  void Hold(size_t bytes) { held_bytes_ += bytes; }
  void Release(size_t bytes) { held_bytes_ -= bytes; }
  void QueuePush() { ++queued_pushes_; }
  void TakePush() { --queued_pushes_; }
  void SetReplies(size_t waiting) { replies_ = waiting; }

  enum class Action {
    kRead,      // start a read now; it then counts as under way
    kSetTimer,  // call TimerRang after `pace`, and ask again; the timer then counts as set
    kWait,      // ask again after the next change
  };
  // `pace`: how long the worker, ahead of others, should not be read; zero: it may.
  Action Next(absl::Duration pace);
  void TimerRang() { timer_set_ = false; }
  bool timer_set() const { return timer_set_; }

 private:
  const Limits limits_;
  bool reading_ = true;  // the first read is started with the stream
  bool closed_ = false;
  bool timer_set_ = false;
  size_t held_bytes_ = 0;
  size_t queued_pushes_ = 0;
  size_t replies_ = 0;
};

}  // namespace ps

#endif  // PS_SERVER_READ_GATE_H_
