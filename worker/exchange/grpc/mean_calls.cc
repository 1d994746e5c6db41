#include "worker/exchange/grpc/mean_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// All workers mostly ask at the same time.
constexpr absl::Duration kFirstPause = absl::Microseconds(200);
constexpr absl::Duration kLongestPause = absl::Milliseconds(50);
// A wait that takes longer is worth a line in the log.
constexpr absl::Duration kQuietWait = absl::Seconds(10);
constexpr absl::Duration kRetellTimeout = absl::Milliseconds(500);

bool MayComeBack(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

}  // namespace

absl::StatusOr<std::vector<double>> MeanCalls::Ask(uint64_t iteration, const std::string& place,
                                                   const std::vector<double>& value) {
  number_ = std::exchange(iteration_, iteration) == iteration ? number_ + 1 : 0;
  MeanRequest request;
  request.set_iteration(iteration);
  request.set_number(number_);
  request.set_place(place);
  request.mutable_value()->Add(value.begin(), value.end());
  absl::Duration pause = kFirstPause;
  absl::Time quiet_until = options_.clock->Now() + kQuietWait;
  while (true) {
    RETURN_IF_ERROR(options_.failure());
    if (options_.stop.stop_requested()) return absl::CancelledError("told to stop");
    const uint64_t view = options_.view();
    const std::shared_ptr<ShardControl> control = options_.control();
    if (control != nullptr) {
      absl::StatusOr<MeanResponse> response = control->Mean(request, ShardControl::kTimeout);
      if (!response.ok() && !MayComeBack(response.status())) return response.status();
      if (response.ok() && response->complete()) {
        request.set_is_mean(true);
        *request.mutable_value() = response->value();
        absl::MutexLock lock(&mutex_);
        latest_ = std::move(request);
        told_in_ = view;
        return std::vector<double>(response->value().begin(), response->value().end());
      }
      if (response.ok() && options_.clock->Now() > quiet_until) {
        quiet_until = absl::InfiniteFuture();
        spdlog::warn("the mean or barrier at {} has waited {} for workers {}", place,
                     absl::FormatDuration(kQuietWait), absl::StrJoin(response->missing(), ", "));
      }
    }
    options_.clock->SleepUntil(options_.clock->Now() + pause, options_.stop);
    pause = std::min(2 * pause, kLongestPause);
  }
}

void MeanCalls::Retell() {
  const uint64_t view = options_.view();
  MeanRequest request;
  {
    absl::MutexLock lock(&mutex_);
    if (!latest_.has_value() || told_in_ == view) return;
    request = *latest_;
  }
  const std::shared_ptr<ShardControl> control = options_.control();
  if (control == nullptr || !control->Mean(request, kRetellTimeout).ok()) return;
  absl::MutexLock lock(&mutex_);
  told_in_ = view;
}

}  // namespace evenshard
