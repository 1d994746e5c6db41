#include "worker/exchange/core/exchange_schedule.h"

#include <utility>

#include "common/base/status_macros.h"

namespace evenshard {

ExchangeSchedule::ExchangeSchedule(const Options& options)
    : options_(options), schedule_(options.config->proto().exchange().schedule()) {}

template <typename Wait>
absl::Status ExchangeSchedule::Timed(Wait wait) {
  const absl::Time start = options_.clock->Now();
  absl::Status status = wait();
  waited_ += options_.clock->Now() - start;
  return status;
}

void ExchangeSchedule::Start(int64_t iteration) {
  iteration_ = iteration;
  has_begun_ = false;
  waited_ = absl::ZeroDuration();
}

absl::Status ExchangeSchedule::AwaitParameters(int layer) {
  if (schedule_ != ExchangeConfig::FULL) return absl::OkStatus();
  return Timed([&] { return options_.exchange->AwaitLayer(layer); });
}

absl::Status ExchangeSchedule::GradientReady(int layer) {
  if (schedule_ == ExchangeConfig::SEQUENTIAL) return absl::OkStatus();
  if (!std::exchange(has_begun_, true)) {
    RETURN_IF_ERROR(options_.exchange->Begin(iteration_, options_.gradients, options_.parameters));
  }
  options_.exchange->Push(layer);
  return absl::OkStatus();
}

absl::Status ExchangeSchedule::Finish(bool contributes, bool everything) {
  if (schedule_ == ExchangeConfig::SEQUENTIAL) {
    return Timed([&] {
      return options_.exchange->PushPull(
          iteration_, contributes ? options_.gradients : absl::Span<const float>(),
          options_.parameters);
    });
  }
  if (schedule_ == ExchangeConfig::FULL && !everything) return absl::OkStatus();
  return Timed([&] { return options_.exchange->AwaitAll(); });
}

}  // namespace evenshard
