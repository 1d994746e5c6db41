#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_ROUND_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_ROUND_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "worker/exchange/core/chunk_states.h"
#include "worker/exchange/core/exchange_kind.h"
#include "worker/exchange/core/push_queue.h"
#include "worker/exchange/core/schedule_policy.h"
#include "worker/exchange/core/stall_watch.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/trace/trace.h"

namespace evenshard {

// The one owner of a worker's iteration: which one it is, which of its chunks have been begun,
// pushed, skipped, sent and answered, and whether it is over. It hands the streams what to send
// next, decides which answers count, and holds the failure that ends the exchange.
//
// One thread begins, pushes, waits and ends. The streams' threads take, report what was sent, and
// claim answers. A further thread calls CheckProgress, without which waits have no limit.
// Thread-safe. Only the methods named Await block.
class ExchangeRound {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the round
    int rank = 0;
    uint64_t incarnation = 0;
    // Returns a shard's name for errors.
    std::function<std::string(int shard)> shard_name;
    // Called without a lock when the shard's streams have something to take.
    std::function<void(int shard)> wake;
    Trace* trace = nullptr;  // see ChunkStates
    // A thread that waits calls it about every 100 ms, without a lock. Null: nothing is called.
    std::function<void()> while_waiting = nullptr;
  };

  explicit ExchangeRound(const Options& options);

  // Where the training thread is in the iteration.
  enum class Phase : uint8_t {
    kIdle,     // none has begun, or the last one is over
    kPushing,  // not all tensors have been pushed
    kPushed,   // all tensors have been pushed, and the iteration is not over
  };
  Phase phase() const;
  // The iteration to begin next: that of StartAt, and later the one after the last that is over.
  // Like an iteration on the wire it is the number of an exchange, which may also assign values.
  uint64_t next_iteration() const {
    absl::MutexLock lock(&mutex_);
    return next_iteration_;
  }
  // QUORUM: whether the run has gone on without this worker, as the answers to the last exchange
  // have shown: its gradient was dropped, or later updates are in its parameters. Then it has to
  // catch up before it trains next_iteration(), which no chunk was past when it answered: by the
  // exchange before it, of the kind Onlooker(), whose answers are the parameters. If the run has
  // gone on meanwhile, that is to be done again.
  bool is_behind() const {
    absl::MutexLock lock(&mutex_);
    return is_behind_;
  }
  static ExchangeKind Onlooker() { return {.skip = true, .onlooks = true}; }
  // Of the exchanges before next_iteration(), those that were no iterations of training.
  AssignmentCounts assignments() const {
    absl::MutexLock lock(&mutex_);
    return assignments_;
  }
  void StartAt(uint64_t iteration, AssignmentCounts assignments = {}) {
    absl::MutexLock lock(&mutex_);
    next_iteration_ = iteration;
    is_behind_ = false;
    assignments_ = assignments;
  }

  // Begins an iteration, in which every tensor has to be pushed. Errors: the failure;
  // FAILED_PRECONDITION if the last iteration is not over, or the worker has to catch up first.
  absl::Status Begin(uint64_t iteration, ExchangeKind kind = {});
  // Pushes tensors: their chunks leave when the schedule lets them. Errors: FAILED_PRECONDITION if
  // no iteration has begun or a tensor has been pushed in it; then none of them is.
  absl::Status Push(absl::Span<const int> tensors,
                    Contribution contribution = Contribution::kGradient);

  // Sends queued small chunks now, because a caller waits for them. The Await methods call it.
  void Flush();

  // These methods wait until a layer's or a tensor's chunks are answered, until all chunks are
  // answered, and until the view is at least as new as each answer that counted. They return at
  // once if no iteration has begun. Errors: the failure; FAILED_PRECONDITION if tensors have to be
  // pushed first, because they are waited for or because the schedule lets nothing leave before.
  absl::Status AwaitLayer(int layer);
  absl::Status AwaitTensor(int tensor) { return Await({.begin = tensor, .end = tensor + 1}); }
  absl::Status AwaitAll();
  absl::Status AwaitView() { return Await({.is_for_view = true}); }

  bool AllAnswered() const {
    absl::MutexLock lock(&mutex_);
    return chunks_.unanswered() == 0;
  }
  bool TensorAnswered(int tensor) const {
    absl::MutexLock lock(&mutex_);
    return chunks_.unanswered_of_tensor(tensor) == 0;
  }
  // Whether the tensor has been pushed in the iteration under way.
  bool TensorPushed(int tensor) const {
    absl::MutexLock lock(&mutex_);
    return is_open_ && chunks_.is_pushed(tensor);
  }
  // Whether every worker pushed the tensor without a gradient (ParameterChunk.all_absent) in the
  // last iteration. REQUIRES: TensorAnswered(tensor).
  bool TensorAllAbsent(int tensor) const {
    absl::MutexLock lock(&mutex_);
    return chunks_.is_all_absent(tensor);
  }
  TrainingExchange::Traffic traffic() const {
    absl::MutexLock lock(&mutex_);
    return chunks_.traffic();
  }
  // Whether all chunks are answered and the view is at least as new as each answer.
  bool Settled() const;
  // The iteration is over. Does nothing if none has begun. REQUIRES: Settled().
  void End();

  // A connection to the shard was made, or its view has changed: every queued or unanswered chunk
  // is queued again, without `hold`. The caller wakes the streams.
  void Open(int shard);
  // The connection has ended: nothing is queued for the shard until Open.
  void Close(int shard);
  // Whether an answer of the shard has counted since Close.
  bool HasAnswered(int shard) const {
    absl::MutexLock lock(&mutex_);
    return has_answered_[shard];
  }

  // Removes the chunks of the next message for a stream of the shard, and returns their headers, or
  // none. `has_data`: the gradients go with the message, which bounds how many.
  std::vector<GradientHeader> Take(int shard, int stream, bool has_data);
  // A message with these chunks has passed flow control. The report may come after the chunks'
  // answers, which imply it, and even in the next iteration.
  void Sent(absl::Span<const GradientHeader> headers);
  // Decides whether an answer of the shard counts. If it returns true, the caller stores the
  // parameters, and then calls Answered with the version that came with them. False: the answer is
  // late, a repeat, or of an older view than this worker's. Errors: INTERNAL for an answer to a
  // chunk that was not pushed to this shard.
  absl::StatusOr<bool> Claim(int shard, const ParameterHeader& header);
  void Answered(uint32_t chunk, uint64_t version);
  // The same for an answer that says `dropped`, which brings no parameters.
  void Dropped(uint32_t chunk);

  // A pull has written a chunk's parameters, in this version and, under SYNC, as they are at this
  // iteration. Rounds `parameters` to exchange.parameter_encoding, as the workers have them that
  // were answered with this version; there are none to round if the chunk's type is not FLOAT32.
  void TakePulled(uint32_t chunk, uint64_t version, uint64_t iteration,
                  absl::Span<float> parameters);
  // Returns the number of chunks that were pulled at a later iteration than the next one.
  size_t PulledAhead() const {
    absl::MutexLock lock(&mutex_);
    return chunks_.PulledAfter(next_iteration_);
  }
  // Returns the sum of the versions of a tensor's chunks, as they were answered or pulled last.
  uint64_t UpdatesOf(int tensor) const;
  // Returns the number of chunks whose version is greater than `version`.
  size_t ChunksAfter(uint64_t version) const {
    absl::MutexLock lock(&mutex_);
    return chunks_.ChunksAfter(version);
  }

  // Sets the view of all later pushes. Answers of older views no longer count. `waits_for_others`:
  // the run waits without a limit for an absent worker or shard, so this worker's waits have no
  // limit either.
  void Follow(uint64_t view, bool waits_for_others = false);
  // While it is set, unanswered and later pushes count as answered, because no shard will answer
  // them.
  void SetAbandoned(bool abandoned);
  bool is_abandoned() const {
    absl::MutexLock lock(&mutex_);
    return is_abandoned_;
  }
  bool waits_for_others() const {
    absl::MutexLock lock(&mutex_);
    return waits_for_others_;
  }
  // Forgets the iteration and the failure. REQUIRES: no other method runs at the same time, and no
  // claim is unanswered.
  void Reset();

  // Fails this iteration and every later one. Only the first failure is kept.
  void Fail(const absl::Status& failure);
  absl::Status failure() const {
    absl::MutexLock lock(&mutex_);
    return failure_;
  }

  // What is waited for is on its way, although nothing of the iteration has moved: for the limit of
  // CheckProgress that is progress.
  void NoteProgress() {
    absl::MutexLock lock(&mutex_);
    ++moves_;
  }

  // Checks whether the current wait has made progress since the last call. Must be called every
  // watch_period(). If there was no progress for limit(), the round fails with DEADLINE_EXCEEDED
  // and the shards' names. Returns a stall of 3 s or more, and once the end of a stall that was
  // news (StallWatch).
  std::optional<Stall> CheckProgress(absl::Time now);
  // How long a wait may make no progress. A shard's own limit is somewhat shorter, because its
  // error says which worker it waited for.
  absl::Duration limit() const { return limit_; }
  absl::Duration watch_period() const { return watch_period_; }

 private:
  struct Wait {
    bool is_for_view = false;
    // Otherwise for the answers of the tensors from `begin` to before `end`.
    int begin = 0;
    int end = 0;
  };

  Phase PhaseLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Errors: see Push.
  absl::Status CheckPush(absl::Span<const int> tensors) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Errors: FAILED_PRECONDITION if `wait` would never end, because something must be pushed first.
  absl::Status CheckPushed(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Queue(uint32_t chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Once all tensors are pushed, small chunks in the queue stop waiting for others, and the
  // schedule may sort the queue.
  void CompleteQueue(int shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues for the streams what the schedule lets leave. The caller calls WakeAll afterwards.
  void QueueReleased() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAll() const;
  Hyperparameters NumbersOf(uint32_t chunk) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  GradientHeader HeaderOf(uint32_t chunk) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The number of the iteration under way for people, who do not count assignments.
  uint64_t Trained() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return chunks_.iteration() - std::min(chunks_.iteration(), assignments_.all);
  }
  // The chunk's parameters have come in a version, or stay in the one that the worker has.
  void AnswerWith(uint32_t chunk, std::optional<uint64_t> version);
  // Returns the number of chunks that `wait` still waits for.
  size_t Remaining(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Await(const Wait& wait);
  // Returns the text of Stall::missing.
  std::string Missing(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const Options options_;
  const PlannedConfig& config_;
  const Plan& plan_;
  const bool is_asynchronous_;
  const bool has_quorum_;
  const bool carries_;  // update.late: CARRY
  const SchedulePolicy schedule_;
  const absl::Duration limit_;
  const absl::Duration watch_period_;

  mutable absl::Mutex mutex_;
  std::vector<PushQueue> queues_ ABSL_GUARDED_BY(mutex_);  // by shard, like the streams
  StallWatch watch_ ABSL_GUARDED_BY(mutex_);
  ChunkStates chunks_ ABSL_GUARDED_BY(mutex_);
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;  // an iteration has begun and is not over
  bool is_abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_iteration_ ABSL_GUARDED_BY(mutex_) = 0;
  AssignmentCounts assignments_ ABSL_GUARDED_BY(mutex_);
  // What the answers of the iteration under way have said so far of where the run is (QUORUM).
  struct Seen {
    bool dropped = false;
    uint64_t least = std::numeric_limits<uint64_t>::max();  // ParameterChunk.next_iteration
    uint64_t most = 0;
  };
  Seen seen_ ABSL_GUARDED_BY(mutex_);
  bool is_behind_ ABSL_GUARDED_BY(mutex_) = false;
  // update.late: CARRY: how much the dropped gradients count that the next one will bring.
  float carried_weight_ ABSL_GUARDED_BY(mutex_) = 0;
  // As the latest answer of the iteration under way says, which counts the iteration too.
  std::optional<AssignmentCounts> answered_ ABSL_GUARDED_BY(mutex_);
  ExchangeKind kind_ ABSL_GUARDED_BY(mutex_);               // of the iteration under way
  std::vector<bool> is_connected_ ABSL_GUARDED_BY(mutex_);  // by shard, like the next
  std::vector<bool> has_answered_ ABSL_GUARDED_BY(mutex_);
  uint64_t view_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waits_for_others_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t newest_view_ ABSL_GUARDED_BY(mutex_) = 0;  // of the answers that counted
  std::optional<Wait> wait_ ABSL_GUARDED_BY(mutex_);  // the current wait, if any
  uint64_t moves_ ABSL_GUARDED_BY(mutex_) = 0;  // counts everything that begins or advances a wait
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_ROUND_H_
