#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_STALL_WATCH_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_STALL_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/doubling_notice.h"

namespace evenshard {

// A wait for the shards that has made no progress for some seconds, or the end of such a wait.
struct Stall {
  uint64_t iteration = 0;
  absl::Duration lasted;
  // "shard 1 (10.0.0.2:50051) has not answered 14 of 320 chunks". Empty if the stall is over.
  std::string missing = {};
  bool is_news = false;  // worth a line in the log
};

// Measures how long a wait has made no progress, and says when that is news: after kNewsAfter and
// whenever its length has doubled, but only if it is twice as long as any of the previous
// iteration. A worker that is slow in every iteration should not fill the log. Not thread-safe.
class StallWatch {
 public:
  // A stall is worth a line in the log after this time.
  static constexpr absl::Duration kNewsAfter = absl::Seconds(3);

  // `period`: between two looks.
  explicit StallWatch(absl::Duration period) : period_(period) {}

  // Begins a look. The caller then calls Moved or Stood.
  void Look(absl::Time now);
  // No thread waits, or `moves` has changed. Returns the stall that has ended with that, if it was
  // news.
  std::optional<Stall> Moved(uint64_t iteration, uint64_t moves);
  // A thread waits, and nothing has moved. Returns for how long.
  absl::Duration Stood();

  uint64_t moves() const { return moves_; }
  // Whether the stall is news since the last time that it was. REQUIRES: it has lasted kNewsAfter.
  bool IsNews() { return news_.Grew(lasted_); }

 private:
  const absl::Duration period_;
  absl::Time looked_ = absl::InfinitePast();
  absl::Duration step_;  // between the last two looks, as far as it counts
  uint64_t iteration_ = 0;
  uint64_t moves_ = 0;
  absl::Duration lasted_;   // the length of the current stall
  absl::Duration longest_;  // the length of the iteration's longest stall
  DoublingNotice<absl::Duration> news_{kNewsAfter};
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_STALL_WATCH_H_
