#include "worker/exchange/grpc/mean_calls.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// A wait that takes longer is worth a line in the log.
constexpr absl::Duration kQuietWait = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::vector<double>> MeanCalls::Ask(uint64_t iteration, const std::string& place,
                                                   const std::vector<double>& value) {
  number_ = std::exchange(iteration_, iteration) == iteration ? number_ + 1 : 0;
  MeanRequest request;
  request.set_iteration(iteration);
  request.set_number(number_);
  request.set_place(place);
  request.mutable_value()->Add(value.begin(), value.end());
  absl::Time quiet_until = calls_.clock().Now() + kQuietWait;
  std::vector<double> mean;
  RETURN_IF_ERROR(calls_.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
    const uint64_t view = view_();
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
      absl::MutexLock lock(&mutex_);
      latest_ = std::move(request);
      told_in_ = view;
    } else if (calls_.clock().Now() > quiet_until) {
      quiet_until = absl::InfiniteFuture();
      spdlog::warn("the mean or barrier at {} has waited {} for workers {}", place,
                   absl::FormatDuration(kQuietWait), absl::StrJoin(response.missing(), ", "));
    }
    return response.complete();
  }));
  return mean;
}

std::string MeanCalls::WhoWaits(uint64_t iteration) {
  {
    // That process may lack a mean that all have given their values to.
    const uint64_t view = view_();
    absl::MutexLock lock(&mutex_);
    if (latest_.has_value() && told_in_ != view) return "";
  }
  const std::shared_ptr<ShardControl> control = calls_.control();
  if (control == nullptr) return "";
  MeanRequest request;
  request.set_iteration(iteration);
  request.set_is_past(true);
  const auto response = control->Mean(request, PersistentCalls::kRetellTimeout);
  return response.ok() ? Printable(response->waits()) : "";
}

void MeanCalls::Forget() {
  absl::MutexLock telling(&telling_);  // what is told after this would be taken for a new mean
  iteration_.reset();
  absl::MutexLock lock(&mutex_);
  latest_.reset();
}

void MeanCalls::Retell() {
  absl::MutexLock telling(&telling_);
  const uint64_t view = view_();
  MeanRequest request;
  {
    absl::MutexLock lock(&mutex_);
    if (!latest_.has_value() || told_in_ == view) return;
    request = *latest_;
  }
  const std::shared_ptr<ShardControl> control = control_();
  if (control == nullptr || !control->Mean(request, PersistentCalls::kRetellTimeout).ok()) return;
  absl::MutexLock lock(&mutex_);
  told_in_ = view;
}

}  // namespace evenshard
