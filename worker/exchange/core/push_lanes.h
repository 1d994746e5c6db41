#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_LANES_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_LANES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/placement/planned_config.h"
#include "worker/exchange/core/push_queue.h"
#include "worker/exchange/core/schedule_policy.h"

namespace evenshard {

// Where chunks wait for the streams to the slots, in the order of the schedule: a PushQueue for
// each slot. Thread-safe.
class PushLanes {
 public:
  // Both must outlive the lanes.
  PushLanes(const PlannedConfig* config, const SchedulePolicy* schedule);

  void Queue(uint32_t chunk);
  void Clear(int slot) { queues_[slot]->Clear(); }
  // Small chunks that wait for others to share a message with go without them.
  void Flush(int slot) { queues_[slot]->Flush(); }
  // Everything has been pushed: no chunk waits for another one any more, and the schedule may sort
  // those that wait.
  void AllQueued(int slot);
  // Removes and returns the chunks of the next message for the stream to send, if any. A message
  // with data has about kMessageBytes, or one chunk.
  std::vector<uint32_t> Pop(int slot, int stream, bool has_data);

 private:
  // Constant after construction, but for what is in the queues.
  const PlannedConfig& config_;
  const SchedulePolicy& schedule_;
  std::vector<std::unique_ptr<PushQueue>> queues_;  // by slot
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_LANES_H_
