#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_TRAINING_EXCHANGE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_TRAINING_EXCHANGE_H_

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/view.pb.h"
#include "proto/worker_usage.pb.h"
#include "worker/exchange/core/exchange_kind.h"
#include "worker/exchange/core/worker_state/worker_state.h"

namespace evenshard {

// The part of Exchange that the training loop uses; exchange.h says more about each method.
//
// An iteration is settled when all its parameters have been received: PushPull or AwaitAll has
// returned, or AwaitLayer for every layer. By then the worker follows a view at least as new as
// each of the answers. So once iteration i - 1 is settled, worker_sets() is final for iteration i,
// and the same at all workers.
//
// Not thread-safe, except for the methods that say otherwise.
class TrainingExchange {
 public:
  // The encoded tensor data that this worker has sent and received.
  struct Traffic {
    uint64_t pushes = 0;  // number of chunks
    uint64_t bytes_out = 0;
    uint64_t bytes_in = 0;
  };

  virtual ~TrainingExchange() = default;

  // The iteration to push next. At first it is 0, unless the run had begun before this worker
  // joined.
  virtual int64_t next_iteration() const = 0;

  // The number of the view that this worker follows, 0 without views, and its list of worker sets
  // (View::worker_set), without views and under ASYNC all ranks from iteration 0 on. Both may
  // change at any time.
  virtual uint64_t view_number() const = 0;
  virtual std::vector<WorkerSet> worker_sets() const = 0;

  // Whether the run has gone back to a checkpoint (a new generation) since Connect or the last
  // Resume. It is true before worker_sets() shows that. While it is true, calls that push or wait
  // fail, and so does Leave for a worker that has finished.
  virtual bool went_back() const = 0;
  // After went_back: joins again and returns the iteration to go on with. Nothing that was pushed
  // is pending then, no parameters are written any more, and the caller has to Pull. Errors: those
  // of Connect; another new generation meanwhile only makes it take longer.
  virtual absl::StatusOr<int64_t> Resume() = 0;

  virtual absl::Status Pull(absl::Span<float> parameters) = 0;
  virtual absl::Status PushPull(int64_t iteration, absl::Span<const float> gradients,
                                absl::Span<float> parameters) = 0;
  virtual absl::Status Begin(int64_t iteration, absl::Span<const float> gradients,
                             absl::Span<float> parameters) = 0;
  // Begins the next exchange, as one of this kind.
  virtual absl::Status Begin(ExchangeKind kind, absl::Span<const float> pushed,
                             absl::Span<float> parameters) = 0;
  virtual absl::Status Push(int layer) = 0;
  // Has small chunks of what was pushed leave, which otherwise wait for others to share a message
  // with until all is pushed or somebody waits.
  virtual void Flush() = 0;
  virtual absl::Status AwaitLayer(int layer) = 0;
  virtual absl::Status AwaitAll() = 0;
  // Whether an iteration has begun and is not settled.
  virtual bool is_begun() const = 0;

  // QUORUM: whether the iteration that was settled last was dropped, or the run has gone on since.
  // Then next_iteration() is another than the one after it, and the caller has to Pull, which may
  // make it a later one still.
  virtual bool is_behind() const = 0;

  // Receives what another worker keeps by itself before the next exchange, or sends it what this
  // one keeps. OfferState is called while another call waits, also Leave.
  virtual absl::Status ReceiveState(const WorkerState::Place& place) = 0;
  virtual void OfferState(WorkerState::Make make, absl::FunctionRef<void()> meanwhile) = 0;

  // May be called from any thread until Leave.
  virtual absl::Status Report(const WorkerUsage& usage, const std::stop_token& stop) = 0;

  virtual absl::Status Leave(const absl::Status& outcome) = 0;
  // May be called from any thread.
  virtual absl::Status SendLeave(const absl::Status& outcome, absl::Duration timeout) = 0;

  virtual Traffic traffic() const = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_TRAINING_EXCHANGE_H_
