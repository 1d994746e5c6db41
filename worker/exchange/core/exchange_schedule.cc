#include "worker/exchange/core/exchange_schedule.h"

#include "common/base/status_macros.h"

namespace evenshard {

ExchangeSchedule::ExchangeSchedule(const Options& options)
    : TrainingSchedule(options.clock), options_(options), schedule_(*options.config) {}

void ExchangeSchedule::Start(int64_t iteration) {
  iteration_ = iteration;
  ForgetWaits();
}

absl::Status ExchangeSchedule::AwaitParameters(int layer) {
  if (!schedule_.waits_in_forward()) return absl::OkStatus();
  return Timed([&] { return options_.exchange->AwaitLayer(layer); });
}

absl::Status ExchangeSchedule::GradientReady(int layer) {
  if (!schedule_.pushes_early()) return absl::OkStatus();
  if (!options_.exchange->is_begun()) {
    RETURN_IF_ERROR(options_.exchange->Begin(iteration_, options_.gradients, options_.parameters));
  }
  return options_.exchange->Push(layer);
}

absl::Status ExchangeSchedule::Finish(bool contributes, bool everything) {
  if (!schedule_.pushes_early()) {
    return Timed([&] {
      return options_.exchange->PushPull(
          iteration_, contributes ? options_.gradients : absl::Span<const float>(),
          options_.parameters);
    });
  }
  if (schedule_.waits_in_forward() && !everything) return absl::OkStatus();
  return Timed([&] { return options_.exchange->AwaitAll(); });
}

}  // namespace evenshard
