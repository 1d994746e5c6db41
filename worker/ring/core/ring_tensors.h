#ifndef EVENSHARD_WORKER_RING_CORE_RING_TENSORS_H_
#define EVENSHARD_WORKER_RING_CORE_RING_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "worker/exchange/core/exchange_kind.h"
#include "worker/exchange/core/exchange_round.h"
#include "worker/ring/core/ring_round.h"

namespace evenshard {

// A worker's iteration in a ring by single tensors, for programs that bring the model
// (model.from_workers), of which each tensor is a layer of its own.
//
// A sum has tensors of which some worker has no gradient beside others, so that the values
// themselves say it: all elements of such a tensor are -0.0 (IsAbsentMark). Adding that changes
// nothing, and a sum is -0.0 only if each of its terms is. In what a worker has, the first element
// of each part of the tensor must not look so, and becomes 0.0.
//
// Used by one thread at a time.
class RingTensors {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    const RingPlan* plan = nullptr;
    RingRound* round = nullptr;
    int rank = 0;
    // The buffers of all iterations.
    absl::Span<float> gradients = {};
    absl::Span<const float> parameters = {};
  };
  explicit RingTensors(const Options& options);

  ExchangeRound::Phase phase() const;
  bool IsPushed(int tensor) const { return options_.round->is_begun() && is_pushed_[tensor]; }
  bool IsAnswered(int tensor) const {
    return IsPushed(tensor) ? options_.round->HasLayer(tensor) : !options_.round->is_begun();
  }
  // Whether each worker had kZeros for the tensor in the iteration that has answered it last. That
  // is only known of all tensors of a segment together; under MEAN also of one that shares its
  // segment.
  bool IsAllAbsent(int tensor);
  // Counts the iterations that have answered the tensor and may have changed it: those in which a
  // worker had a gradient of it or, unless the optimizer's kind is MEAN, of another one of its
  // segment. Under MEAN a tensor of which a part has no mean, since all workers had kNothing for
  // another tensor of its segment, counts as one without a gradient.
  uint64_t updates(int tensor);

  // The round has begun an iteration.
  void Begun(bool assigns);
  // Pushes tensors, in this order. Where nothing is assigned, kZeros and kNothing need no content
  // of `gradients`. Only worker 0 pushes buffers. Errors: those of RingRound::Push; after
  // FAILED_PRECONDITION for a tensor that has been pushed none of them is.
  absl::Status Push(absl::Span<const int> tensors, Contribution contribution);
  // A wait has ended, and the iteration with it if the round has no other under way.
  void Awaited();

 private:
  // Counts what the open iteration has made of a tensor, once it has answered that. The others may
  // still be on their way.
  void CountIfAnswered(int tensor);
  // Makes the memory say what this worker has of a tensor.
  void Mark(int tensor, Contribution contribution);
  // Whether a mean says that no worker had a gradient of the tensor.
  bool IsMarked(int tensor) const;

  const Options options_;
  const bool is_mean_;  // optimizer.kind MEAN
  // By tensor: the segments with its parts, and the first elements of these, in the buffers.
  std::vector<std::vector<uint32_t>> segments_;
  std::vector<std::vector<int64_t>> heads_;

  bool is_open_ = false;  // an iteration has begun and is not counted for all tensors
  bool assigns_ = false;
  size_t pushed_ = 0;  // tensors
  std::vector<bool> is_pushed_;
  std::vector<bool> is_counted_;  // in the open iteration
  std::vector<bool> is_all_absent_;
  std::vector<uint64_t> updates_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_TENSORS_H_
