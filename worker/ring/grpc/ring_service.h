#ifndef EVENSHARD_WORKER_RING_GRPC_RING_SERVICE_H_
#define EVENSHARD_WORKER_RING_GRPC_RING_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/raw_call.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "proto/ring.grpc.pb.h"
#include "worker/ring/core/ring_predecessor.h"
#include "worker/ring/core/ring_round.h"
#include "worker/ring/grpc/ring_receiver.h"

namespace evenshard {

// What a worker of a ring offers to its predecessor: it takes up one incarnation of it, and hands
// the streams of that to the round. All methods are raw; see ParameterService. Thread-safe.
class RingService final
    : public Ring::WithRawCallbackMethod_Join<Ring::WithRawCallbackMethod_Reduce<
          Ring::WithRawCallbackMethod_Gather<Ring::WithRawCallbackMethod_Fail<
              Ring::WithRawCallbackMethod_Ask<Ring::WithRawCallbackMethod_Tell<
                  Ring::WithRawCallbackMethod_GetStats<Ring::Service>>>>>>> {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the service, like every pointer here
    const RingPlan* plan = nullptr;
    int rank = 0;
    int predecessor = 0;      // its rank
    uint64_t generation = 0;  // RingStart::generation
    RingRound* round = nullptr;
    // The predecessor was lost: its streams have broken.
    std::function<void()> on_lost;
    // The predecessor has sent everything, and has left.
    std::function<void()> on_finished;
    // It tells something of another worker, or of itself. Errors are its answer.
    std::function<absl::Status(const RingNote&)> on_note;
    // The predecessor says why the run ends.
    std::function<void(const absl::Status&)> on_news;
    // The round has refused what it sent.
    std::function<void()> on_failure;
    // Whether the worker waits for others, or has failed, of which these hear.
    std::function<bool()> waits;
    // What the worker has done, for operators.
    std::function<RingStats()> stats;
  };

  explicit RingService(const Options& options)
      : options_(options),
        predecessor_({.config = options.config,
                      .plan = options.plan,
                      .rank = options.rank,
                      .predecessor = options.predecessor,
                      .generation = options.generation}) {}
  // REQUIRES: all RPCs have ended.
  ~RingService() override = default;

  // Waits until the predecessor has joined and opened its streams. Errors: the round's failure;
  // DEADLINE_EXCEEDED after `timeout`; CANCELLED soon after `stop` is requested.
  absl::Status AwaitPredecessor(absl::Duration timeout, const std::stop_token& stop);

  // What the last worker that was refused was told, as "worker 1 was refused: ...", or "".
  std::string refusal() const {
    absl::MutexLock lock(&mutex_);
    return refusal_;
  }

  // Ends all streams with `status`.
  void EndStreams(const absl::Status& status);

 private:
  UnaryReactor* Join(CallContext* context, const MessageBytes* request,
                     MessageBytes* response) override;
  UnaryReactor* Fail(CallContext* context, const MessageBytes* request,
                     MessageBytes* response) override;
  UnaryReactor* Ask(CallContext* context, const MessageBytes* request,
                    MessageBytes* response) override;
  UnaryReactor* Tell(CallContext* context, const MessageBytes* request,
                     MessageBytes* response) override;
  UnaryReactor* GetStats(CallContext* context, const MessageBytes* request,
                         MessageBytes* response) override;
  BidiReactor* Reduce(CallContext* context) override { return Open(context, RingWay::kReduce); }
  BidiReactor* Gather(CallContext* context) override { return Open(context, RingWay::kGather); }

  BidiReactor* Open(CallContext* context, RingWay way);
  // Errors: PERMISSION_DENIED unless the caller may be this worker.
  absl::Status CheckWorker(const CallContext& context, uint32_t worker) const;
  // Errors: those of RingPredecessor; the round's failure; FAILED_PRECONDITION if this worker has
  // ended.
  absl::Status TakeUp(const RingJoinRequest& join);
  void Done(RingReceiver* receiver, bool was_closed);

  const Options options_;

  mutable absl::Mutex mutex_;
  RingPredecessor predecessor_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<RingReceiver>> receivers_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::string refusal_ ABSL_GUARDED_BY(mutex_);  // the last one
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_GRPC_RING_SERVICE_H_
