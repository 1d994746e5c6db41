#include "worker/ring/core/ring_tensors.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/exchange/core/not_pushed.h"
#include "worker/ring/core/ring_sums.h"

namespace evenshard {

RingTensors::RingTensors(const Options& options)
    : options_(options),
      is_mean_(options.config->proto().optimizer().kind() == OptimizerConfig::MEAN) {
  const size_t tensors = options.config->model().tensors().size();
  segments_.resize(tensors);
  heads_.resize(tensors);
  is_pushed_.resize(tensors);
  is_counted_.resize(tensors);
  is_all_absent_.resize(tensors);
  updates_.resize(tensors);
  for (const RingSegment& segment : options.plan->segments()) {
    for (const RingRun& run : options.plan->runs(segment)) {
      segments_[run.tensor].push_back(segment.id);
      heads_[run.tensor].push_back(run.begin);
    }
  }
}

ExchangeRound::Phase RingTensors::phase() const {
  if (!options_.round->is_begun()) return ExchangeRound::Phase::kIdle;
  return pushed_ < is_pushed_.size() ? ExchangeRound::Phase::kPushing
                                     : ExchangeRound::Phase::kPushed;
}

void RingTensors::Begun(bool assigns) {
  is_open_ = true;
  assigns_ = assigns;
  pushed_ = 0;
  std::fill(is_pushed_.begin(), is_pushed_.end(), false);
  std::fill(is_counted_.begin(), is_counted_.end(), false);
}

absl::Status RingTensors::Push(absl::Span<const int> tensors, Contribution contribution) {
  if (!tensors.empty() && !options_.round->is_begun()) {
    return absl::FailedPreconditionError("no iteration has begun");
  }
  RETURN_IF_ERROR(CheckNotPushed(options_.config->model(), tensors,
                                 [this](int tensor) { return is_pushed_[tensor]; }));
  for (const int tensor : tensors) {
    const bool is_buffer = options_.config->model().tensors()[tensor].role == TensorRole::kBuffer;
    const Contribution counted = assigns_                          ? Contribution::kGradient
                                 : is_buffer && options_.rank != 0 ? Contribution::kNothing
                                                                   : contribution;
    Mark(tensor, contribution);
    is_pushed_[tensor] = true;
    ++pushed_;
    RETURN_IF_ERROR(options_.round->Push(tensor, counted));
  }
  return absl::OkStatus();
}

void RingTensors::Mark(int tensor, Contribution contribution) {
  const Tensor& info = options_.config->model().tensors()[tensor];
  const absl::Span<float> values = options_.gradients.subspan(info.offset, info.size);
  if (contribution != Contribution::kGradient) {
    if (assigns_) {  // it stays as it is
      const auto parameters = options_.parameters.subspan(info.offset, info.size);
      std::copy(parameters.begin(), parameters.end(), values.begin());
    } else {
      std::fill(values.begin(), values.end(), -0.0F);
    }
  } else if (!assigns_) {
    for (const int64_t head : heads_[tensor]) {
      if (IsAbsentMark(options_.gradients[head])) options_.gradients[head] = 0;
    }
  }
}

bool RingTensors::IsMarked(int tensor) const {
  const Tensor& info = options_.config->model().tensors()[tensor];
  return is_mean_ && !assigns_ && info.role == TensorRole::kParameter &&
         IsAbsentMark(options_.parameters[info.offset]);
}

bool RingTensors::IsAllAbsent(int tensor) {
  CountIfAnswered(tensor);
  return is_all_absent_[tensor];
}

uint64_t RingTensors::updates(int tensor) {
  CountIfAnswered(tensor);
  return updates_[tensor];
}

void RingTensors::Awaited() {
  if (!is_open_ || options_.round->is_begun()) return;
  for (int i = 0; i < static_cast<int>(updates_.size()); ++i) CountIfAnswered(i);
  is_open_ = false;
}

void RingTensors::CountIfAnswered(int tensor) {
  if (!is_open_ || is_counted_[tensor] || !IsAnswered(tensor)) return;
  is_counted_[tensor] = true;
  const std::vector<uint32_t>& segments = segments_[tensor];
  const auto count = [&](RingRound::Outcome outcome) {
    return std::count_if(segments.begin(), segments.end(), [&](uint32_t id) {
      return options_.round->OutcomeOf(options_.plan->segments()[id]) == outcome;
    });
  };
  const int64_t changed = count(RingRound::Outcome::kChanged);
  const bool is_any_unchanged = changed < static_cast<int64_t>(segments.size());
  const bool has_update = changed > 0 && !(is_mean_ && is_any_unchanged) && !IsMarked(tensor);
  if (has_update) ++updates_[tensor];
  is_all_absent_[tensor] = !has_update && count(RingRound::Outcome::kUnchanged) == 0;
}

}  // namespace evenshard
