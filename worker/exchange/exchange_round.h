#ifndef PS_WORKER_EXCHANGE_EXCHANGE_ROUND_H_
#define PS_WORKER_EXCHANGE_EXCHANGE_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/config.h"
#include "worker/trace/trace.h"

namespace ps {

// A wait in which nothing has moved for some seconds.
struct Stall {
  uint64_t iteration = 0;
  absl::Duration lasted;
  // "shard 1 (10.0.0.2:50051) has not answered 14 of 320 chunks". Empty: the wait goes on again.
  std::string missing = {};
  bool is_news = false;  // worth a line in the log
};

// How far one iteration's exchange has come: of each chunk whether it has been pushed, sent
// and answered; and the failure that ends the exchange. One thread begins, pushes and waits;
// others tell what has happened; one more calls CheckProgress, without which a wait has no limit.
// Thread-safe.
class ExchangeRound {
 public:
  // `shard_name` says in errors which shard is meant. `trace`, where there is one, hears of each
  // layer's "push", from its first chunk pushed to its last one sent, and of its "pull", from its
  // first answer to its last. `config` and `trace` must outlive the round.
  ExchangeRound(const Config& config, std::function<std::string(int shard)> shard_name,
                Trace* trace);

  // Begins an iteration: every chunk is to be pushed and answered.
  // REQUIRES: those of the last one have been answered. Errors: the failure.
  absl::Status Begin(uint64_t iteration);

  void Pushed(absl::Span<const uint32_t> chunks);
  // May come after the chunk's answer, which stands for it, and even in the next iteration.
  void Sent(uint32_t chunk);
  // Whether the chunk was pushed in this iteration and is not answered.
  bool Awaits(uint32_t chunk, uint64_t iteration) const;
  void Answered(uint32_t chunk);

  // Ends this round and every later one. The first failure counts.
  void Fail(const absl::Status& failure);

  // Each waits until the chunks of a layer, or all, are answered, or until all that were pushed
  // are sent; at once where nothing has begun. Errors: the failure.
  absl::Status AwaitLayer(int layer);
  absl::Status AwaitAll();
  absl::Status AwaitSent();

  // Looks whether anything has moved since the last look; to be called every watch_period().
  // Where nothing has for limit(), the round fails with DEADLINE_EXCEEDED, naming the shards.
  // Returns a wait that has lasted for some seconds, and, once, that one goes on which was news.
  // It is news after 3 s and whenever it has doubled, but only if it is twice as long as those of
  // the last iteration: a worker that is slow in every iteration is not worth lines in each.
  std::optional<Stall> CheckProgress(absl::Time now);

  bool AllAnswered() const;
  // How long each wait lets nothing happen: somewhat longer than a shard does, which says
  // for whom it waited.
  absl::Duration limit() const { return limit_; }
  absl::Duration watch_period() const { return watch_period_; }

 private:
  enum class State : uint8_t { kAnswered, kBegun, kPushed, kSent };

  void CountSent(uint32_t chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Wait {
    bool is_for_sent = false;       // otherwise for answers:
    std::optional<int> layer = {};  // of this layer, or of all
  };

  // What CheckProgress has seen.
  struct Watch {
    absl::Time checked = absl::InfinitePast();
    uint64_t iteration = 0;
    uint64_t moves = 0;
    absl::Duration lasted;   // of the wait in which nothing has moved
    absl::Duration longest;  // of these in the iteration
    absl::Duration news_after;
    bool was_news = false;  // that wait
  };

  // The chunks that a wait waits for.
  size_t Remaining(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Await(const Wait& wait);
  // Which shards have not done what, as in Stall.
  std::string Missing(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const Plan& plan_;
  const absl::Duration limit_;
  const absl::Duration watch_period_;
  const std::function<std::string(int)> shard_name_;
  Trace* const trace_;
  std::vector<int> layer_of_chunk_;
  std::vector<size_t> layer_chunks_;

  mutable absl::Mutex mutex_;
  uint64_t iteration_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);  // by chunk
  // How many calls of Sent are still to come whose chunk was answered before.
  std::vector<uint32_t> overtaken_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> layer_unpushed_ ABSL_GUARDED_BY(mutex_);  // by layer
  std::vector<size_t> layer_unsent_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> layer_unanswered_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> shard_unsent_ ABSL_GUARDED_BY(mutex_);
  size_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t unsent_ ABSL_GUARDED_BY(mutex_) = 0;         // pushed, and neither sent nor answered
  std::optional<Wait> wait_ ABSL_GUARDED_BY(mutex_);  // under way
  uint64_t moves_ ABSL_GUARDED_BY(mutex_) = 0;        // grows with whatever ends or begins a wait
  Watch watch_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ps

#endif  // PS_WORKER_EXCHANGE_EXCHANGE_ROUND_H_
