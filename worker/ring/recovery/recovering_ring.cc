#include "worker/ring/recovery/recovering_ring.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/control/view/worker_set.h"

namespace evenshard {
namespace {

// Whether a failure says that a worker was lost, or has given up.
bool IsLoss(const absl::Status& failure) {
  return absl::IsUnavailable(failure) || absl::IsDeadlineExceeded(failure) ||
         absl::IsAborted(failure) || absl::IsCancelled(failure);
}

}  // namespace

RecoveringRing::RecoveringRing(const Options& options)
    : options_(options),
      views_({.config = options.ring.config,
              .rank = options.ring.rank,
              .link = options.views,
              .stop = options.ring.stop}) {}

absl::StatusOr<std::unique_ptr<RecoveringRing>> RecoveringRing::Connect(const Options& options) {
  std::unique_ptr<RecoveringRing> ring(new RecoveringRing(options));
  RETURN_IF_ERROR(ring->Form());
  return ring;
}

RecoveringRing::~RecoveringRing() {
  if (!has_left_) Dissolve(absl::CancelledError("the worker ended"));
}

void RecoveringRing::SetStart(const View& view, RingExchange::Options* options) {
  RingStart& start = options->start;
  const auto ranks = LastWorkerSet(view.worker_set());
  start.ranks.assign(ranks.begin(), ranks.end());
  start.generation = view.generation();
  start.checkpoint = view.checkpoint();
  const auto id = ParseCheckpointId(view.checkpoint());
  start.iteration = id.has_value() ? static_cast<int64_t>(id->iteration) : 0;
}

absl::Status RecoveringRing::Form() {
  while (true) {
    // The ring hears of a stop and of a later generation alike.
    std::stop_source ends;
    ASSIGN_OR_RETURN(view_, views_.Await([ends]() mutable { ends.request_stop(); }));
    RingExchange::Options options = options_.ring;
    SetStart(view_, &options);
    first_iteration_ = options.start.iteration;
    stopped_.emplace(options_.ring.stop, [ends]() mutable { ends.request_stop(); });
    options.stop = ends.get_token();
    absl::StatusOr<std::unique_ptr<RingExchange>> ring = RingExchange::Connect(options);
    if (!ring.ok()) {
      if (IsFollowed(ring.status())) continue;
      return ring.status();
    }
    {
      absl::MutexLock lock(&mutex_);
      ring_ = *std::move(ring);
    }
    if (options_.ring.config->proto().recovery().has_checkpoint()) {
      checkpointer_ =
          std::make_unique<RingCheckpointer>(RingCheckpointer::Options{.config = options.config,
                                                                       .part = &ring_->part(),
                                                                       .storage = &storage_,
                                                                       .clock = options.clock,
                                                                       .view = view_});
    }
    return absl::OkStatus();
  }
}

void RecoveringRing::Dissolve(const absl::Status& why) {
  checkpointer_.reset();
  if (ring_ == nullptr) return;
  if (!has_left_) ring_->Leave(why).IgnoreError();
  const Traffic traffic = ring_->traffic();
  absl::MutexLock lock(&mutex_);
  former_.pushes += traffic.pushes;
  former_.bytes_out += traffic.bytes_out;
  former_.bytes_in += traffic.bytes_in;
  ring_.reset();
}

absl::StatusOr<int64_t> RecoveringRing::Resume() {
  Dissolve(absl::AbortedError(absl::StrCat("the run goes back to ", views_.Beginning())));
  RETURN_IF_ERROR(Form());
  went_back_ = false;
  has_left_ = false;
  return next_iteration();
}

bool RecoveringRing::IsFollowed(const absl::Status& failure) {
  const ClusterConfig& config = options_.ring.config->proto();
  if (options_.ring.stop.stop_requested() || config.recovery().worker_loss() == Recovery::FAIL) {
    return false;
  }
  // A process that is silent is killed by then, and one that cannot read the checkpoints has tried.
  const absl::Duration patience = std::max(absl::Seconds(config.limits().startup_seconds()),
                                           2 * absl::Seconds(config.recovery().silence_seconds()));
  if (IsLoss(failure) && views_.IsLater(patience)) return true;
  if (!options_.ring.stop.stop_requested()) views_.Fail(failure);
  return false;
}

absl::Status RecoveringRing::Checked(absl::Status status) {
  if (status.ok() || went_back_ || !IsFollowed(status)) return status;
  went_back_ = true;
  return WithKind(ErrorDetail::WENT_BACK,
                  absl::AbortedError(absl::StrCat("the run goes back to ", views_.Beginning(), ": ",
                                                  status.message())));
}

void RecoveringRing::CutIfDue(bool is_last) {
  const int64_t iteration = next_iteration();
  if (checkpointer_ == nullptr || ring_->is_begun() || iteration == first_iteration_) return;
  if (is_last || checkpointer_->IsCutAt(iteration)) {
    checkpointer_->TakeCut(iteration, options_.ring.parameters);
  }
}

absl::Status RecoveringRing::Pull(absl::Span<float> parameters) {
  return Checked(ring_->Pull(parameters));
}

absl::Status RecoveringRing::PushPull(int64_t iteration, absl::Span<const float> gradients,
                                      absl::Span<float> parameters) {
  CutIfDue();
  return Checked(ring_->PushPull(iteration, gradients, parameters));
}

absl::Status RecoveringRing::Begin(int64_t iteration, absl::Span<const float> gradients,
                                   absl::Span<float> parameters) {
  CutIfDue();
  return Checked(ring_->Begin(iteration, gradients, parameters));
}

absl::Status RecoveringRing::Begin(ExchangeKind kind, absl::Span<const float> pushed,
                                   absl::Span<float> parameters) {
  CutIfDue();
  return Checked(ring_->Begin(std::move(kind), pushed, parameters));
}

absl::Status RecoveringRing::Leave(const absl::Status& outcome) {
  if (!outcome.ok()) {
    // What has been trained is not good enough, and would not be if it were trained again.
    if (absl::IsFailedPrecondition(outcome)) views_.Fail(outcome);
    Dissolve(outcome);
    has_left_ = true;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Checked(ring_->AwaitAll()));
  CutIfDue(/*is_last=*/true);
  has_left_ = true;
  RETURN_IF_ERROR(Checked(ring_->Leave(outcome)));
  // Nobody was lost, so the others write their parts, too.
  if (checkpointer_ != nullptr) checkpointer_->Finish();
  checkpointer_.reset();
  ASSIGN_OR_RETURN(went_back_, views_.Finish());
  if (went_back_) {
    return WithKind(ErrorDetail::WENT_BACK,
                    absl::AbortedError(absl::StrCat("the run goes back to ", views_.Beginning())));
  }
  return absl::OkStatus();
}

absl::Status RecoveringRing::SendLeave(const absl::Status& outcome, absl::Duration timeout) {
  const std::shared_ptr<RingExchange> present = ring();
  return present == nullptr ? absl::OkStatus() : present->SendLeave(outcome, timeout);
}

absl::Status RecoveringRing::Report(const WorkerUsage& usage, const std::stop_token& stop) {
  const std::shared_ptr<RingExchange> present = ring();
  return present == nullptr ? absl::OkStatus() : present->Report(usage, stop);
}

TrainingExchange::Traffic RecoveringRing::traffic() const {
  Traffic traffic = former_;
  if (ring_ == nullptr) return traffic;
  const Traffic latest = ring_->traffic();
  traffic.pushes += latest.pushes;
  traffic.bytes_out += latest.bytes_out;
  traffic.bytes_in += latest.bytes_in;
  return traffic;
}

}  // namespace evenshard
