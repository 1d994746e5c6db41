#ifndef EVENSHARD_SERVER_STORE_SHARD_COUNTERS_H_
#define EVENSHARD_SERVER_STORE_SHARD_COUNTERS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/admin.pb.h"
#include "server/store/push_counts.h"

namespace evenshard {

// Counts what a shard has done since its start. Thread-safe. Each count is exact, but an event that
// changes two of them may be visible in only one for a moment.
class ShardCounters {
 public:
  PushCounts received;
  std::atomic<uint64_t> pulls{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> updates{0};
  std::atomic<int64_t> aggregate_nanoseconds{0};
  std::atomic<int64_t> apply_nanoseconds{0};
  std::atomic<int64_t> straggler_wait_nanoseconds{0};

  // Counts parameters that are sent or, to shared memory, written.
  void CountReply(uint64_t bytes);
  // Counts a push in a histogram of staleness with the buckets 0, 1, 2, 3, [4, 7], [8, 15], ...
  void CountStaleness(uint64_t staleness);

  // Copies the counts to the fields of the same names.
  void Fill(ShardStats* stats) const;

 private:
  static constexpr int kBuckets = 20;  // the last bucket has no upper bound
  std::array<std::atomic<uint64_t>, kBuckets> staleness_{};
};

// Adds the time between its construction and its destruction to a counter.
class CountedTime {
 public:
  explicit CountedTime(std::atomic<int64_t>* nanoseconds)
      : nanoseconds_(nanoseconds), start_(Clock::now()) {}
  ~CountedTime() { *nanoseconds_ += std::chrono::nanoseconds(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::atomic<int64_t>* const nanoseconds_;
  const Clock::time_point start_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_SHARD_COUNTERS_H_
