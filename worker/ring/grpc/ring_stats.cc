// What a worker of a ring tells operators of itself, for RingExchange.

#include "absl/time/time.h"
#include "common/base/text.h"
#include "common/net/border_stats.h"
#include "worker/ring/grpc/ring_exchange.h"

namespace evenshard {

absl::Status RingExchange::Await(absl::FunctionRef<absl::Status()> wait) {
  const absl::Time begin = options_.clock->Now();
  absl::Status status = wait();
  absl::MutexLock lock(&mutex_);
  waited_ += options_.clock->Now() - begin;
  return status;
}

absl::Status RingExchange::Report(const WorkerUsage& usage, const std::stop_token& stop) {
  absl::MutexLock lock(&mutex_);
  reported_ = {.time = options_.clock->Now(), .usage = usage};
  return absl::OkStatus();
}

RingStats RingExchange::Stats() const {
  const absl::Time now = options_.clock->Now();
  const Traffic traffic = round_->traffic();
  const absl::Status failure = round_->failure();
  RingStats stats;
  stats.set_worker(options_.rank);
  stats.set_incarnation(incarnation_);
  stats.set_plan_fingerprint(plan_.fingerprint());
  stats.set_generation(options_.start.generation);
  stats.mutable_member()->Add(ranks_.begin(), ranks_.end());
  stats.set_uptime_seconds(absl::ToDoubleSeconds(now - started_));
  stats.set_iteration(round_->trained());
  stats.set_bytes_in(traffic.bytes_in);
  stats.set_bytes_out(traffic.bytes_out);
  FillBorder(listening_, config_.proto(), &stats);
  if (!failure.ok()) stats.set_failure(Printable(failure.message()));
  absl::MutexLock lock(&mutex_);
  stats.set_wait_seconds(absl::ToDoubleSeconds(waited_));
  if (stall_.has_value()) {
    stats.mutable_wait()->set_iteration(stall_->iteration);
    stats.mutable_wait()->set_seconds(absl::ToDoubleSeconds(stall_->lasted));
    stats.mutable_wait()->set_missing(stall_->missing);
  }
  if (reported_.has_value()) {
    *stats.mutable_usage() = reported_->usage;
    stats.set_usage_seconds_ago(absl::ToDoubleSeconds(now - reported_->time));
  }
  return stats;
}

}  // namespace evenshard
