// How a ring clips the mean gradient by its norm (update.clip_global_norm), for RingRound:
//   1. A sum of this worker's part that is whole stays in the gradients' memory, and its squares
//      are added up (HoldSummed).
//   2. When that is so of all of the part, the squares leave for the others, each of which passes
//      them on until all have them (TakeNorm). They travel before all parameters.
//   3. When the squares of all parts are there, every worker computes the same norm. ReduceHeld
//      then has the sums of its part updated, by the clipped mean (UpdateSummed).

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ring/core/ring_round.h"

namespace evenshard {

absl::Status RingRound::HoldSummed(const RingSegment& segment, const Work& work,
                                   const Decoded<GradientHeader>& received) {
  const bool has_received = !received.header.skip;
  const auto iteration = static_cast<int64_t>(work.trained);
  const float weight = work.weight + (has_received ? received.header.weight : 0);
  SquareSum squares;
  if (weight > 0) {
    if (!has_received) {
      RETURN_IF_ERROR(sums_.Check(segment, iteration, work.gradients));
    } else if (work.weight > 0) {
      RETURN_IF_ERROR(sums_.Add(segment, iteration, received.data, work.gradients));
    } else {
      sums_.Store(segment, received.data, work.gradients);
    }
    ASSIGN_OR_RETURN(squares, norm_.SquaresOf(segment, work.iteration, 1 / weight, work.gradients));
  }
  {
    absl::MutexLock lock(&mutex_);
    ++moves_;
    summed_.push_back({&segment, weight});
    if (!norm_.AddOwn(squares)) return absl::OkStatus();
    QueuePart(options_.place);
    RETURN_IF_ERROR(LearnNorm());
  }
  options_.wake(RingWay::kGather, kNormStream);
  return absl::OkStatus();
}

void RingRound::QueuePart(int place) {
  const Outgoing part = {.iteration = work_.iteration,
                         .norm = norm_.part(place).limbs(),
                         .norm_chunk = norm_.ChunkOf(place)};
  ++unsent_;
  queues_[static_cast<size_t>(RingWay::kGather)][kNormStream].push_back(part);
}

absl::Status RingRound::LearnNorm() {
  if (norm_.is_missing()) return absl::OkStatus();
  ASSIGN_OR_RETURN(coefficient_, norm_.Coefficient(work_.iteration));
  return absl::OkStatus();
}

absl::Status RingRound::TakeNorm(const Decoded<ParameterHeader>& received) {
  bool goes_on = false;
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
    ++moves_;
    const bool is_expected = is_begun_ && received.header.iteration == work_.iteration;
    absl::StatusOr<int> part = absl::InvalidArgumentError(
        absl::StrCat("a part of the gradient's norm of iteration ", received.header.iteration));
    if (is_expected) part = norm_.AddReceived(received.header.chunk, received.data);
    if (!part.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.predecessor, " sent ", part.status().message(),
                       ", which cannot come in iteration ", work_.iteration));
    }
    goes_on = (options_.place + 1) % workers_ != *part;
    if (goes_on) QueuePart(*part);
    RETURN_IF_ERROR(LearnNorm());
  }
  if (goes_on) options_.wake(RingWay::kGather, kNormStream);
  return absl::OkStatus();
}

absl::Status RingRound::UpdateSummed(const Summed& summed, const Work& work, float coefficient) {
  const bool is_unchanged = summed.weight == 0;
  if (!is_unchanged) {
    const RingPart::Sum sum = {.own = work.gradients.data() + summed.segment->begin,
                               .scale = 1 / summed.weight,
                               .coefficient = coefficient,
                               .hyperparameters = *work.hyperparameters};
    RETURN_IF_ERROR(Update(*summed.segment, work, sum));
  }
  PassParameters(*summed.segment, work, is_unchanged ? Outcome::kUnchanged : Outcome::kChanged);
  return absl::OkStatus();
}

}  // namespace evenshard
