#include "worker/exchange/grpc/mean_calls.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/wire/mean_limits.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// A wait that takes longer is worth a line in the log.
constexpr absl::Duration kQuietWait = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::vector<double>> MeanCalls::Ask(uint64_t iteration, const std::string& place,
                                                   const std::vector<double>& value) {
  number_ = std::exchange(iteration_, iteration) == iteration ? number_ + 1 : 0;
  if (number_ == 0) {
    // All workers have begun the exchange after the means that were before.
    absl::MutexLock lock(&mutex_);
    known_.clear();
    told_ = 0;
  }
  MeanRequest request;
  request.set_iteration(iteration);
  request.set_number(number_);
  request.set_generation(calls_.generation());
  request.set_place(place);
  request.mutable_value()->Add(value.begin(), value.end());
  absl::Time quiet_until = calls_.clock().Now() + kQuietWait;
  const uint64_t view = view_();  // the first process that can answer is of this one, or later
  std::vector<double> mean;
  RETURN_IF_ERROR(calls_.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const MeanResponse response, control.Mean(request, ShardControl::kTimeout));
    if (response.complete()) {
      if (response.value_size() != request.value_size()) {
        return absl::InternalError(absl::StrCat(control.name(), " gave a mean of ",
                                                response.value_size(), " values, asked for ",
                                                request.value_size()));
      }
      mean.assign(response.value().begin(), response.value().end());
      request.set_is_mean(true);
      *request.mutable_value() = response.value();
      Know(std::move(request), view);
    } else if (calls_.clock().Now() > quiet_until) {
      quiet_until = absl::InfiniteFuture();
      spdlog::warn("the mean or barrier at {} has waited {} for workers {}", place,
                   absl::FormatDuration(kQuietWait), absl::StrJoin(response.missing(), ", "));
    }
    return response.complete();
  }));
  return mean;
}

void MeanCalls::Know(MeanRequest mean, uint64_t view) {
  absl::MutexLock lock(&mutex_);
  if (known_.empty()) told_in_ = view;
  const bool are_told = told_in_ == view && told_ == known_.size();
  known_.push_back(std::move(mean));
  if (are_told) ++told_;
  if (known_.size() <= kMostMeans) return;
  known_.pop_front();
  if (told_ > 0) --told_;
}

std::string MeanCalls::WhoWaits(uint64_t iteration) {
  {
    // That process may lack a mean that all have given their values to.
    const uint64_t view = view_();
    absl::MutexLock lock(&mutex_);
    if (!known_.empty() && (told_in_ != view || told_ < known_.size())) return "";
  }
  const std::shared_ptr<ShardControl> control = calls_.control();
  if (control == nullptr) return "";
  MeanRequest request;
  request.set_iteration(iteration);
  request.set_is_past(true);
  request.set_generation(calls_.generation());
  const auto response = control->Mean(request, PersistentCalls::kRetellTimeout);
  return response.ok() ? Printable(response->waits()) : "";
}

void MeanCalls::Forget() {
  absl::MutexLock telling(&telling_);  // what is told after this would be taken for a new mean
  iteration_.reset();
  absl::MutexLock lock(&mutex_);
  known_.clear();
  told_ = 0;
}

void MeanCalls::Retell() {
  absl::MutexLock telling(&telling_);
  const uint64_t view = view_();
  const absl::Time end = calls_.clock().Now() + PersistentCalls::kRetellTimeout;
  while (calls_.clock().Now() < end) {
    MeanRequest request;
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(told_in_, view) != view) told_ = 0;
      if (told_ == known_.size()) return;
      request = known_[told_];
    }
    const std::shared_ptr<ShardControl> control = control_();
    if (control == nullptr) return;
    const absl::Status told = control->Mean(request, PersistentCalls::kRetellTimeout).status();
    // Who has refused it has another mean there, and whoever waits for one of them is told so.
    if (PersistentCalls::MayComeBack(told)) return;
    absl::MutexLock lock(&mutex_);
    // Unless an Ask has forgotten it meanwhile.
    const bool is_next = told_in_ == view && told_ < known_.size() &&
                         known_[told_].iteration() == request.iteration() &&
                         known_[told_].number() == request.number();
    if (!is_next) return;
    ++told_;
  }
}

}  // namespace evenshard
