#ifndef PS_SERVER_PUSH_COUNTS_H_
#define PS_SERVER_PUSH_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace ps {

// What became of a push. One that is refused is none of these and is counted nowhere.
enum class PushOutcome {
  kCounted,   // its gradient is in an update, or in the sum that becomes one
  kSkipped,   // its worker contributes nothing at this iteration
  kRepeated,  // it was counted before
};

// The pushes of a shard, or of a worker, by outcome; and the bytes of their data, of repeats too.
// Thread-safe.
class PushCounts {
 public:
  void Add(PushOutcome outcome, uint64_t bytes) {
    bytes_in_ += bytes;
    ++(outcome == PushOutcome::kCounted   ? pushes_
       : outcome == PushOutcome::kSkipped ? skipped_
                                          : repeated_);
  }

  uint64_t bytes_in() const { return bytes_in_; }

  // Writes them to a ShardStats or a WorkerStats.
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

}  // namespace ps

#endif  // PS_SERVER_PUSH_COUNTS_H_
