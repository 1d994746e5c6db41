#ifndef EVENSHARD_WORKER_RING_CORE_RING_ROUND_H_
#define EVENSHARD_WORKER_RING_CORE_RING_ROUND_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/optimizer/square_sum.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/hyperparameters.h"
#include "worker/exchange/core/exchange_kind.h"
#include "worker/exchange/core/stall_watch.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/ring/core/ring_agreement.h"
#include "worker/ring/core/ring_norm.h"
#include "worker/ring/core/ring_part.h"
#include "worker/ring/core/ring_sums.h"

namespace evenshard {

// The two streams of a ring: sums on their way to the worker whose part they are, and parameters on
// their way from it.
enum class RingWay : uint8_t { kReduce, kGather };

// The one owner of a worker's iteration in a ring. With n workers and segment s of part p:
//
//   worker p + 1      p + 2            p - 1            p
//   its gradient -->  + its own -...-> + its own ---->  + its own, optimizer     kReduce
//
//   worker p          p + 1            p - 2            p - 1
//   parameters ---->  stored ---...->  stored ------->  stored                   kGather
//
// So each worker receives a segment at most once each way in an iteration, and adds gradients in an
// order that is always the same. A sum takes the place of this worker's gradient, and leaves from
// there; parameters are written to their place, and are passed on from there.
//
// If the config clips the mean by its norm, worker p keeps its sums until the norm is known, to
// which each worker contributes the squares of its part (ring_clipping.cc).
//
// A sum that comes before this worker has pushed the segment's layers is held where it was
// received, until ReduceHeld adds it. So a predecessor may be ahead by up to an iteration.
//
// Memory that a stream sends from is not written before the successor has received it. The next
// change of a segment's gradient or parameters needs the parameters that its worker p makes of the
// sum in which the successor's contribution is, and the successor contributes to that sum only when
// it has received what this worker had sent it before. Others who write there, between iterations,
// have to call AwaitAll, which waits until everything is sent.
//
// One thread begins, pushes and waits. The streams' threads take what is to be sent, and hand over
// what was received. One thread calls ReduceHeld, another one CheckProgress, without which waits
// have no limit. Thread-safe. Only the methods named Await and ReduceHeld block.
class RingRound {
 public:
  // What an iteration has made of a segment.
  enum class Outcome : uint8_t {
    kChanged,
    kUnchanged,  // no worker had a gradient of it
    kAllZeros,   // and each of them has pushed kZeros only: none has left itself out
  };
  // What a stream sends next.
  struct Outgoing {
    const RingSegment* segment = nullptr;
    uint64_t iteration = 0;
    // The buffer of gradients or of parameters. Empty: no worker has contributed.
    absl::Span<const float> buffer = {};
    float weight = 0;     // kReduce: of the workers in the sum
    bool is_own = false;  // kReduce: it is this worker's gradient, the first of the sum
    // kReduce: each worker so far has pushed kZeros only. kGather: all have.
    bool all_zeros = false;
    uint64_t trained = 0;  // the number of the iteration for people
    RingActions actions = {};
    // kGather, in place of a segment: the squares of a worker's part, and their chunk (RingNorm).
    SquareSum::Limbs norm = {};
    uint32_t norm_chunk = 0;
  };
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the round, like every pointer here
    const RingPlan* plan = nullptr;
    RingPart* part = nullptr;
    int place = 0;  // in the ring
    int rank = 0;   // for errors
    uint64_t first_iteration = 0;
    // The names of neighbours for errors, such as "worker 1 (10.0.0.2:50051)".
    std::string predecessor = {};
    // Called without a lock when a stream has something to take.
    std::function<void(RingWay way, int stream)> wake;
    // Called when a range of the parameters has been written, before any wait for it ends.
    std::function<void(int64_t begin, int64_t count)> on_parameters_written;
    // A thread that waits calls it about every 100 ms, without a lock. Null: nothing is called.
    std::function<void()> while_waiting = nullptr;
  };

  explicit RingRound(const Options& options);

  // The iteration that has begun, or else the one to begin next.
  uint64_t iteration() const {
    absl::MutexLock lock(&mutex_);
    return work_.iteration;
  }
  bool is_begun() const {
    absl::MutexLock lock(&mutex_);
    return is_begun_;
  }
  // The iteration that has begun, while the training thread waits for something of it.
  std::optional<uint64_t> AwaitedIteration() const {
    absl::MutexLock lock(&mutex_);
    return is_begun_ && wait_.has_value() ? std::optional(work_.iteration) : std::nullopt;
  }
  // How many iterations before that one assigned values and trained nothing. People do not count
  // them.
  uint64_t assignments() const {
    absl::MutexLock lock(&mutex_);
    return assignments_;
  }
  // The others before that one.
  uint64_t trained() const {
    absl::MutexLock lock(&mutex_);
    return work_.iteration - assignments_;
  }

  // Begins an iteration. Its sums are made in `gradients`, also if this worker does not contribute
  // (kind.skip). Both have Model::buffer_size() floats. With kind.assigned, which can be 0, the one
  // worker that contributes has the next parameters in `gradients`. All workers must begin with the
  // same `assigned` and hyperparameters, or the run fails. Errors: the failure; FAILED_PRECONDITION
  // if one has begun; UNIMPLEMENTED for kinds that a ring does not have.
  absl::Status Begin(const ExchangeKind& kind, absl::Span<float> gradients,
                     absl::Span<float> parameters);
  // A layer's gradient is there. The segments of which it was the last leave. This worker leaves
  // itself out of the mean of a segment with a layer of kNothing, and of one of buffers without a
  // layer of kGradient. Elsewhere kZeros says that IsAbsentMark holds for all elements. Errors: the
  // failure; FAILED_PRECONDITION if no iteration has begun or the layer has been pushed.
  absl::Status Push(int layer, Contribution contribution = Contribution::kGradient);
  // Wait until a layer's parameters are there, or all, and with AwaitAll until everything is sent.
  // The iteration is over when all parameters are there. Return at once if none has begun. Errors:
  // the failure; FAILED_PRECONDITION if something must be pushed first.
  absl::Status AwaitLayer(int layer);
  absl::Status AwaitAll();
  // Whether a layer's parameters are there.
  bool HasLayer(int layer) const;
  // Returns what the iteration that was begun last has made of a segment. REQUIRES: the parameters
  // of the segment's layers are there.
  Outcome OutcomeOf(const RingSegment& segment) const {
    absl::MutexLock lock(&mutex_);
    return segments_[segment.id].outcome;
  }

  // Removes and returns what a stream sends next. The caller reports with Sent that it has left.
  std::optional<Outgoing> Take(RingWay way, int stream);
  void Sent();
  const RingSums& sums() const { return sums_; }

  // Take a segment that was received. A sum may be held: then `owner` keeps `data` until it has
  // been added. Errors, which fail the round too: INVALID_ARGUMENT for a segment that cannot come
  // now, or whose data does not fit; those of RingSums and RingPart.
  absl::Status TakeReduced(const Decoded<GradientHeader>& received,
                           std::shared_ptr<const void> owner);
  absl::Status TakeGathered(const Decoded<ParameterHeader>& received);

  // The predecessor has sent everything, and has left the run as one that has finished.
  void PredecessorFinished() {
    absl::MutexLock lock(&mutex_);
    predecessor_finished_ = true;
  }
  bool has_predecessor_finished() const {
    absl::MutexLock lock(&mutex_);
    return predecessor_finished_;
  }
  // FAILED_PRECONDITION if it has, and this worker has begun an iteration for which it needs it.
  absl::Status Forsaken() const;
  // FAILED_PRECONDITION, of the predecessor that has finished while this worker goes on. REQUIRES:
  // has_predecessor_finished().
  absl::Status PredecessorEnded() const;

  // Waits until a sum that was held can be added, and adds it, or until one of this worker's part
  // can be clipped, and has it updated. Returns false when the round has failed or is to end.
  bool ReduceHeld();
  // What ReduceHeld waits for, for a caller that must not block.
  bool HasHeld() const {
    absl::MutexLock lock(&mutex_);
    return ReducesHeld();
  }
  void EndHeld();

  // Fails this iteration and every later one. Returns whether it is the first failure, which is
  // kept.
  bool Fail(const absl::Status& failure);
  absl::Status failure() const {
    absl::MutexLock lock(&mutex_);
    return failure_;
  }

  // Whether this worker is not the one that others wait for: it waits itself, or has failed, of
  // which the others hear.
  bool waits() const {
    absl::MutexLock lock(&mutex_);
    return wait_.has_value() || !failure_.ok();
  }
  // Whether nothing is missing of the iteration but what this worker has not sent yet.
  bool only_sends() const {
    absl::MutexLock lock(&mutex_);
    return incomplete_ == 0 && !norm_.is_missing();
  }
  // Checks whether the current wait has made progress since the last call. Must be called every
  // watch_period(). Returns a stall of 3 s or more, and once the end of a stall that was news
  // (StallWatch). The caller decides what follows from one that has lasted limit().
  std::optional<Stall> CheckProgress(absl::Time now);
  // limits.exchange_seconds.
  absl::Duration limit() const { return limit_; }
  absl::Duration watch_period() const { return watch_period_; }

  TrainingExchange::Traffic traffic() const {
    absl::MutexLock lock(&mutex_);
    return traffic_;
  }

 private:
  // A sum that waits where it was received.
  struct Held {
    Decoded<GradientHeader> received;
    std::shared_ptr<const void> owner;
  };
  // A sum of this worker's part that is whole, in the gradients' memory.
  struct Summed {
    const RingSegment* segment = nullptr;
    float weight = 0;  // of the workers in it
  };
  struct SegmentState {
    int unpushed_layers = 0;
    // What this worker has pushed of it.
    bool has_gradient = false;
    bool has_nothing = false;
    bool is_received = false;  // the sum
    bool is_complete = false;  // the parameters are there
    Outcome outcome = Outcome::kChanged;
  };
  // The iteration under way, as Begin was told of it.
  struct Work {
    uint64_t iteration = 0;
    absl::Span<float> gradients = {};
    absl::Span<float> parameters = {};
    float weight = 0;        // 0: this worker does not contribute
    bool has_zeros = false;  // it contributes kZeros only (WorkOf)
    uint64_t trained = 0;    // the number of the iteration for people
    bool assigns = false;
    std::shared_ptr<const std::vector<Hyperparameters>> hyperparameters = {};  // by tensor
    uint64_t agreement = 0;                                                    // RingActions
  };
  // What the training thread waits for.
  struct Wait {
    int layer = -1;  // or all of them
    bool until_sent = false;
  };

  bool IsReady(const RingSegment& segment) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_begun_ && segments_[segment.id].unpushed_layers == 0;
  }
  // The segment's gradient is whole: queues it if it begins at this worker, and lets a sum be added
  // that was held.
  void Release(const RingSegment& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Queue(RingWay way, Outgoing outgoing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int StreamOf(const RingSegment& segment) const {
    return static_cast<int>(segment.id % connections_);
  }
  void Wake(RingWay way, const RingSegment& segment) const {
    options_.wake(way, StreamOf(segment));
  }
  // The work for a segment, of which this worker may leave itself out.
  Work WorkOf(const RingSegment& segment) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  RingActions ActionsOf(const RingSegment& segment, const Work& work) const;
  // What is sent of a sum. Its weight is that of the workers in it.
  Outgoing SumOf(const RingSegment& segment, const Work& work, float weight, bool all_zeros) const;
  void Complete(const RingSegment& segment, Outcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Finds a received segment, and checks it against the plan. Errors: INVALID_ARGUMENT.
  absl::StatusOr<const RingSegment*> Find(uint32_t id, int32_t encoding, Encoding expected,
                                          const Segments& data, bool has_data) const;
  // Claims a sum that can be added, or holds it. Returns the work, or nullopt if it is held.
  absl::StatusOr<std::optional<Work>> Claim(const RingSegment& segment, Held held);
  // Adds a received sum to this worker's gradient, and passes it on or applies it.
  absl::Status Reduce(const RingSegment& segment, const Work& work,
                      const Decoded<GradientHeader>& received);
  absl::Status PassSum(const RingSegment& segment, const Work& work,
                       const Decoded<GradientHeader>& received);
  absl::Status UpdatePart(const RingSegment& segment, const Work& work,
                          const Decoded<GradientHeader>& received);
  // Updates a segment of this worker's part in place.
  absl::Status Update(const RingSegment& segment, const Work& work, const RingPart::Sum& sum);
  // The steps of clipping.
  absl::Status HoldSummed(const RingSegment& segment, const Work& work,
                          const Decoded<GradientHeader>& received);
  absl::Status TakeNorm(const Decoded<ParameterHeader>& received);
  absl::Status UpdateSummed(const Summed& summed, const Work& work, float coefficient);
  // Queues the squares of a worker's part.
  void QueuePart(int place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sets the coefficient if the norm is known. Errors: those of CheckNorm.
  absl::Status LearnNorm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a sum of this worker's part can be clipped.
  bool CanClip() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !summed_.empty() && coefficient_.has_value();
  }
  bool ReducesHeld() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ends_ || !failure_.ok() || !released_.empty() || CanClip();
  }
  // The parameters of a segment are there: completes it, and passes them on unless the successor is
  // where they came from.
  void PassParameters(const RingSegment& segment, const Work& work, Outcome outcome);
  uint32_t Remaining(const Wait& wait) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Await(const Wait& wait);

  // The stream on which the parts of the norm travel.
  static constexpr int kNormStream = 0;

  // Constant after construction.
  const Options options_;
  const RingPlan& plan_;
  const RingSums sums_;
  const Encoding parameter_encoding_;
  const int workers_;
  const uint32_t connections_;
  const absl::Duration limit_;
  const absl::Duration watch_period_;

  mutable absl::Mutex mutex_;
  StallWatch watch_ ABSL_GUARDED_BY(mutex_);
  Work work_ ABSL_GUARDED_BY(mutex_);
  uint64_t assignments_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool predecessor_finished_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t sent_until_ ABSL_GUARDED_BY(mutex_) = 0;      // by the predecessor: the iteration after
  std::vector<bool> is_pushed_ ABSL_GUARDED_BY(mutex_);  // by layer
  std::vector<SegmentState> segments_ ABSL_GUARDED_BY(mutex_);
  uint32_t incomplete_ ABSL_GUARDED_BY(mutex_) = 0;                    // segments
  std::vector<uint32_t> incomplete_of_layer_ ABSL_GUARDED_BY(mutex_);  // segments
  // By way and stream.
  std::array<std::vector<std::deque<Outgoing>>, 2> queues_ ABSL_GUARDED_BY(mutex_);
  uint32_t unsent_ ABSL_GUARDED_BY(mutex_) = 0;  // segments in the queues or with a stream
  // Sums that came before their layers were pushed: of even and of odd iterations.
  std::array<std::unordered_map<uint32_t, Held>, 2> held_ ABSL_GUARDED_BY(mutex_);
  std::deque<Held> released_ ABSL_GUARDED_BY(mutex_);  // from held_, and can be added
  RingNorm norm_;  // clips and SquaresOf may be called without the lock
  std::deque<Summed> summed_ ABSL_GUARDED_BY(mutex_);
  std::optional<float> coefficient_ ABSL_GUARDED_BY(mutex_);  // absent until the norm is known
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Wait> wait_ ABSL_GUARDED_BY(mutex_);
  uint64_t moves_ ABSL_GUARDED_BY(mutex_) = 0;  // counts everything that advances a wait
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  TrainingExchange::Traffic traffic_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_ROUND_H_
