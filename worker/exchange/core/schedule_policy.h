#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_SCHEDULE_POLICY_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_SCHEDULE_POLICY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/placement/planned_config.h"

namespace evenshard {

// What the config's exchange.schedule means for a worker. The training loop, the exchange and the C
// interface ask it; nothing else interprets the schedule.
//
//               gradients leave                     parameters are waited for
//   SEQUENTIAL  when all of them are computed       at the end of the iteration
//   BACKWARD    each as soon as it is computed      at the end of the iteration
//   FULL        each as soon as it is computed      where the next forward pass needs them
//
// Under SEQUENTIAL the pushes have the links to themselves: a shard holds its answers back until a
// stream's last chunk comes, and the last chunks of all streams leave when all other chunks have
// been sent. Under FULL, when all gradients have been pushed, the chunks that still wait to be sent
// are sorted in the order of the model, in which the next forward pass needs them.
//
// Constant after construction.
class SchedulePolicy {
 public:
  // REQUIRES: config.has_model().
  explicit SchedulePolicy(const PlannedConfig& config);

  bool pushes_early() const { return schedule_ != ExchangeConfig::SEQUENTIAL; }
  bool waits_in_forward() const { return schedule_ == ExchangeConfig::FULL; }
  bool sorts_at_end() const { return schedule_ == ExchangeConfig::FULL; }
  // The stream to its shard that sends the chunk as its last one. None for a chunk that need not
  // wait until others have been sent.
  std::optional<int> LastOfStream(uint32_t chunk) const {
    const int stream = pushes_early() ? -1 : last_of_stream_[chunk];
    return stream < 0 ? std::nullopt : std::optional(stream);
  }
  // Whether the shard is to keep its answer until a stream's last chunk comes.
  bool HoldsAnswer(uint32_t chunk) const { return !pushes_early() && last_of_stream_[chunk] < 0; }

  // Removes from `waiting`, the chunks that were pushed and have not left, those that may leave
  // now, and returns them in the order in which they should. `all_pushed`: no more come in this
  // iteration. `all_sent`: no chunk that was returned before is still to be sent.
  std::vector<uint32_t> Release(std::vector<uint32_t>& waiting, bool all_pushed,
                                bool all_sent) const;

 private:
  const ExchangeConfig::Schedule schedule_;
  std::vector<int> last_of_stream_;  // by chunk, or -1; empty if the pushes are early
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_SCHEDULE_POLICY_H_
