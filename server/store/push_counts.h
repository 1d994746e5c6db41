#ifndef EVENSHARD_SERVER_STORE_PUSH_COUNTS_H_
#define EVENSHARD_SERVER_STORE_PUSH_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace evenshard {

// The outcome of a push that was taken. Pushes that are refused are not counted.
enum class PushOutcome {
  kCounted,   // its gradient is in an update, or in a sum that will become one
  kSkipped,   // its worker contributes nothing at this iteration
  kRepeated,  // it had been counted before
  kDropped,   // it came too late to count (QUORUM)
  kAssigned,  // of an exchange that assigns values, which is no iteration of training
};

// Counts the pushes of a shard or of a worker by outcome, and the bytes of their data, including
// those of repeats. Thread-safe.
class PushCounts {
 public:
  void Add(PushOutcome outcome, uint64_t bytes) {
    bytes_in_ += bytes;
    if (outcome == PushOutcome::kAssigned || outcome == PushOutcome::kDropped) return;
    ++(outcome == PushOutcome::kCounted   ? pushes_
       : outcome == PushOutcome::kSkipped ? skipped_
                                          : repeated_);
  }

  uint64_t bytes_in() const { return bytes_in_; }

  // Copies the counts to a ShardStats or a WorkerStats.
  template <typename Stats>
  void Fill(Stats* stats) const {
    stats->set_pushes(pushes_);
    stats->set_skipped_pushes(skipped_);
    stats->set_repeated_pushes(repeated_);
    stats->set_bytes_in(bytes_in_);
  }

 private:
  std::atomic<uint64_t> pushes_{0};
  std::atomic<uint64_t> skipped_{0};
  std::atomic<uint64_t> repeated_{0};
  std::atomic<uint64_t> bytes_in_{0};
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_PUSH_COUNTS_H_
