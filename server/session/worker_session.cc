#include "server/session/worker_session.h"

#include "absl/time/time.h"

namespace evenshard {

void WorkerSession::CountPush(PushOutcome outcome, uint64_t iteration, uint64_t bytes) {
  WorkerActivity& activity = *activity_;
  activity.last_seen = absl::ToUnixNanos(clock_->Now());
  activity.received.Add(outcome, bytes);
  uint64_t next = activity.next_iteration;
  while (next < iteration + 1 &&
         !activity.next_iteration.compare_exchange_weak(next, iteration + 1)) {
  }
}

}  // namespace evenshard
