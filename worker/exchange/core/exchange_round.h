#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_ROUND_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/doubling_notice.h"
#include "common/placement/planned_config.h"
#include "worker/trace/trace.h"

namespace evenshard {

// A wait for the shards that has made no progress for some seconds, or the end of such a wait.
struct Stall {
  uint64_t iteration = 0;
  absl::Duration lasted;
  // "shard 1 (10.0.0.2:50051) has not answered 14 of 320 chunks". Empty if the stall is over.
  std::string missing = {};
  bool is_news = false;  // worth a line in the log
};

// The progress of one iteration's exchange. It knows for each chunk whether it has been pushed,
// sent and answered, and which version this worker holds; it decides which answers count; and it
// holds the failure that ends the exchange. One thread begins, pushes and waits, and others report
// what has happened. A further thread calls CheckProgress, without which waits have no limit.
// Thread-safe. Only the methods named Await block.
class ExchangeRound {
 public:
  // `shard_name` returns a shard's name for errors. `trace`, if not null, records each layer's
  // "push", from its first chunk pushed to its last one sent, and its "pull", from its first answer
  // to its last. `config` and `trace` must outlive the round.
  // If `while_waiting` is not null, a thread that waits calls it about every 100 ms, without a
  // lock.
  ExchangeRound(const PlannedConfig& config, std::function<std::string(int shard)> shard_name,
                Trace* trace, std::function<void()> while_waiting = nullptr);

  // Begins an iteration, in which every chunk has to be pushed and answered. With `skip` the
  // pushes contribute nothing. `learning_rates` are those that go with the pushes, by tensor; empty
  // for none. REQUIRES: all chunks of the previous iteration have been answered. Errors: the
  // failure.
  absl::Status Begin(uint64_t iteration, bool skip = false,
                     absl::Span<const float> learning_rates = {});

  // With `skip` these pushes contribute nothing.
  void Pushed(absl::Span<const uint32_t> chunks, bool skip = false);
  // Returns the chunks of a shard that were pushed and are not answered. They have to be sent once
  // more: what was sent before may not have arrived.
  std::vector<uint32_t> PushAgain(int shard);

  // What a message that pushes a chunk says.
  struct Push {
    uint64_t iteration = 0;
    uint64_t base_version = 0;
    uint64_t view = 0;
    bool skip = false;
    std::optional<float> learning_rate = {};
    bool again = false;  // the chunk was returned by PushAgain in this iteration
  };
  // Returns what to send for a chunk, or nothing if it is answered already.
  std::optional<Push> ToSend(uint32_t chunk) const;
  // Reports that a chunk was sent in `iteration`. The report may come after the chunk's answer,
  // which implies it, and even in the next iteration.
  void Sent(uint32_t chunk, uint64_t iteration);

  // Decides whether an answer counts. If it returns true, the caller stores the parameters, and
  // then calls Answered with the version that came with them. False: the answer is late, was given
  // twice, or is of an older view than this worker's. Errors: INTERNAL for an answer to what was
  // not pushed.
  absl::StatusOr<bool> Claim(uint32_t chunk, uint64_t iteration, uint64_t view);
  void Answered(uint32_t chunk, uint64_t version);
  // Sets the version that this worker holds, after a Pull.
  void SetVersion(uint32_t chunk, uint64_t version);
  // Returns how many chunks this worker holds in a version after number `version`.
  size_t ChunksAfter(uint64_t version) const;

  // From now on pushes are of this view, and older answers do not count. `waits_for_absent`: the
  // run waits for a worker that is not there, for however long that takes, so waits have no limit.
  void Follow(uint64_t view, bool waits_for_absent = false);

  // Takes the unanswered chunks for answered, because nobody will answer them.
  void GiveUp();
  // Forgets the iteration and the failure. REQUIRES: nobody calls any other method meanwhile, and
  // no claim is unanswered.
  void Reset();

  // Fails this iteration and every later one. Only the first failure is kept.
  void Fail(const absl::Status& failure);
  absl::Status failure() const;

  // These methods wait until a layer's or a tensor's chunks are answered, until all chunks are
  // answered, until all chunks that were pushed are sent, and until the view is at least as new as
  // each answer that counted. They return at once if no iteration has begun. Errors: the failure.
  absl::Status AwaitLayer(int layer);
  absl::Status AwaitTensor(int tensor);
  absl::Status AwaitAll();
  absl::Status AwaitSent();
  absl::Status AwaitView();

  // Checks whether the current wait has made progress since the last call. Must be called every
  // watch_period(). If there was no progress for limit(), the round fails with DEADLINE_EXCEEDED
  // and the shards' names. Returns a stall of 3 s or more, and once the end of a stall that was
  // news. A stall is news after 3 s and whenever its length has doubled, but only if it is twice as
  // long as any of the previous iteration: a worker that is slow in every iteration should not fill
  // the log.
  std::optional<Stall> CheckProgress(absl::Time now);

  bool AllAnswered() const;
  bool TensorAnswered(int tensor) const;
  // Whether all chunks are answered and the view is at least as new as each answer.
  bool Settled() const;
  // How long a wait may make no progress. A shard's own limit is somewhat shorter, because its
  // error says which worker it waited for.
  absl::Duration limit() const { return limit_; }
  absl::Duration watch_period() const { return watch_period_; }

 private:
  // A stall is worth a line in the log after this time.
  static constexpr absl::Duration kNewsAfter = absl::Seconds(3);

  enum class State : uint8_t { kAnswered, kBegun, kPushed, kSent, kClaimed };
  enum class Until : uint8_t { kAnswered, kSent, kViewed };

  bool IsPending(uint32_t chunk) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return states_[chunk] == State::kPushed || states_[chunk] == State::kSent;
  }
  // Returns the rate that goes with a push, if any. There is none for running statistics.
  std::optional<float> LearningRate(uint32_t chunk) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void CountAnswered(uint32_t chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountSent(uint32_t chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Wait {
    Until until = Until::kAnswered;
    // Whose answers are awaited; at most one is there, and none for all.
    std::optional<int> layer = {};
    std::optional<int> tensor = {};
  };

  // The state of CheckProgress.
  struct Watch {
    absl::Time checked = absl::InfinitePast();
    uint64_t iteration = 0;
    uint64_t moves = 0;
    absl::Duration lasted;                            // the length of the current stall
    absl::Duration longest;                           // the length of the iteration's longest stall
    DoublingNotice<absl::Duration> news{kNewsAfter};  // whether a stall is news
  };

  // Returns the number of chunks that `wait` still waits for.
  size_t Remaining(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Await(const Wait& wait);
  // Returns the text of Stall::missing.
  std::string Missing(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const Plan& plan_;
  const absl::Duration limit_;
  const absl::Duration watch_period_;
  const std::function<std::string(int)> shard_name_;
  Trace* const trace_;
  const std::function<void()> while_waiting_;
  std::vector<bool> is_statistic_;  // by tensor
  std::vector<int> layer_of_chunk_;
  std::vector<size_t> layer_chunks_;

  mutable absl::Mutex mutex_;
  uint64_t iteration_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<float> learning_rates_ ABSL_GUARDED_BY(mutex_);  // by tensor, or empty
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);          // by chunk
  std::vector<bool> skips_ ABSL_GUARDED_BY(mutex_);            // by chunk
  std::vector<bool> again_ ABSL_GUARDED_BY(mutex_);            // by chunk: see Push::again
  std::vector<uint64_t> versions_ ABSL_GUARDED_BY(mutex_);     // by chunk
  uint64_t view_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waits_for_absent_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t newest_view_ ABSL_GUARDED_BY(mutex_) = 0;            // of the answers that counted
  std::vector<size_t> layer_unpushed_ ABSL_GUARDED_BY(mutex_);  // by layer
  std::vector<size_t> layer_unsent_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> layer_unanswered_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> tensor_unanswered_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> shard_unsent_ ABSL_GUARDED_BY(mutex_);
  size_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t unsent_ ABSL_GUARDED_BY(mutex_) = 0;         // pushed, and neither sent nor answered
  std::optional<Wait> wait_ ABSL_GUARDED_BY(mutex_);  // the current wait, if any
  uint64_t moves_ ABSL_GUARDED_BY(mutex_) = 0;  // counts everything that begins or advances a wait
  Watch watch_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_ROUND_H_
