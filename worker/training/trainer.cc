// One iteration, step by step:
//   1. Load this worker's batch, which the data.threads have read ahead.
//   2. Run the forward and backward pass, which computes the gradient of the batch's mean loss.
//      Under the schedules BACKWARD and FULL, each layer's gradient is pushed as soon as it exists.
//      Under FULL, a layer's forward pass waits for the parameters of the previous iteration
//      (ExchangeSchedule).
//   3. Clip the gradient and check that it is finite, if the config asks for it.
//   4. Push the gradient under SEQUENTIAL (worker/exchange/grpc/exchange.cc). Receive the updated
//      parameters under SEQUENTIAL and BACKWARD.
//   5. At the end of some epochs: receive all parameters, and evaluate on one worker.
//
// With local steps (LocalRounds), steps 2 and 4 are those of the local model and, at the end of a
// round, of its exchange.
//
// Which workers train in an iteration is certain when the one before is settled (TrainingExchange).
// Decisions that depend on it are made no earlier, so that all workers make the same: whether an
// epoch or the training has ended, and which worker evaluates. Only the batch has to be chosen
// earlier under FULL, where step 2 begins before that. The pass has then waited for all parameters
// before it has a gradient, and if other images turn out to be this worker's, the iteration is
// begun again.

#include "worker/training/trainer.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/core/exchange_schedule.h"
#include "worker/training/local_rounds.h"
#include "worker/training/traced_hooks.h"

namespace evenshard {
namespace {

// Forwards to the schedule's hooks, loads the next batch while a device computes, and ends the pass
// if its batch turns out to be a wrong one.
class IterationHooks final : public LayerHooks {
 public:
  struct Options {
    LayerHooks* schedule = nullptr;
    int last_layer = -1;  // the last one that AwaitParameters is called for
    std::function<void()> pass_queued;
    // Called when all parameters are there. Returns whether the batch is the right one.
    std::function<absl::StatusOr<bool>()> settled;
  };

  explicit IterationHooks(const Options& options) : options_(options) {}

  // Whether the pass has ended because of its batch.
  bool is_dealt_anew() const { return is_dealt_anew_; }

  absl::Status AwaitParameters(int layer) override {
    RETURN_IF_ERROR(options_.schedule->AwaitParameters(layer));
    if (layer != options_.last_layer) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool is_right, options_.settled());
    if (is_right) return absl::OkStatus();
    is_dealt_anew_ = true;
    return absl::CancelledError("the images are dealt anew");
  }
  void PassQueued() override { options_.pass_queued(); }
  absl::Status GradientReady(int layer) override { return options_.schedule->GradientReady(layer); }

 private:
  const Options options_;
  bool is_dealt_anew_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const Options& options) {
  const PlannedConfig& config = *options.config;
  if (options.rank < 0 || options.rank >= config.workers()) {
    return absl::OutOfRangeError(absl::StrCat("there is no worker ", options.rank,
                                              ": the config has ", config.workers(),
                                              " workers, ranks 0 to ", config.workers() - 1));
  }
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  if (config.proto().data().source_case() != Data::SOURCE_NOT_SET) {
    ASSIGN_OR_RETURN(trainer->data_, OpenDatasets(config));
  }
  for (size_t layer = 0; layer < config.model().layers().size(); ++layer) {
    if (config.model().layers()[layer].tensor_count > 0) trainer->last_layer_ = layer;
  }
  ASSIGN_OR_RETURN(trainer->batches_,
                   TrainingBatches::Create(config, options.rank, trainer->data_.train.get()));
  if (trainer->data_.test != nullptr) {
    trainer->evaluation_ = std::make_unique<Evaluation>(config, trainer->data_.test.get());
    // It is rank 0 that evaluates unless it is lost.
    if (options.rank == 0) {
      RETURN_IF_ERROR(trainer->evaluation_->Open());
    }
  }
  const BackendOptions backend_options = {.rank = options.rank,
                                          .clock = options.clock,
                                          .trace = options.trace,
                                          .stop = trainer->stop_.get_token()};
  ASSIGN_OR_RETURN(trainer->backend_, options.create_backend(config, backend_options));
  ASSIGN_OR_RETURN(trainer->buffers_, Exchange::AllocateBuffers(config, options.addresses));
  if (config.proto().has_local()) {
    trainer->steps_ = config.proto().local().steps();
    ASSIGN_OR_RETURN(trainer->local_, LocalModel::Create(config));
  }
  RETURN_IF_ERROR(trainer->UseBuffers());
  return trainer;
}

absl::Status Trainer::UseBuffers() {
  const bool is_local = local_ != nullptr;
  HostBuffers buffers = {.parameters = is_local ? local_->parameters() : buffers_.parameters.span(),
                         .gradients = is_local ? local_->gradients() : buffers_.gradients.span()};
  const auto add = [&](const std::vector<absl::Span<float>>& images) {
    buffers.images.insert(buffers.images.end(), images.begin(), images.end());
  };
  add(batches_->buffers());
  if (evaluation_ != nullptr) add(evaluation_->buffers());
  return backend_->UseBuffers(buffers);
}

void Trainer::Stop(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    stop_reason_.Update(reason);
  }
  stop_.request_stop();
}

void Trainer::Abandon(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  if (exchange_ != nullptr) exchange_->SendLeave(stop_reason_, timeout).IgnoreError();
}

absl::Status Trainer::StopReason() {
  absl::MutexLock lock(&mutex_);
  return stop_reason_;
}

void Trainer::SetExchange(TrainingExchange* exchange) {
  absl::MutexLock lock(&mutex_);
  exchange_ = exchange;
}

void Trainer::SetProgress(ProgressReporter* progress) {
  absl::MutexLock lock(&mutex_);
  progress_ = progress;
}

void Trainer::ShowStall(const Stall& stall) {
  absl::MutexLock lock(&mutex_);
  if (stall.is_news && progress_ != nullptr) progress_->Flush();
  LogStall(stall);
  if (!stall.missing.empty() && progress_ != nullptr) {
    progress_->ReportWait(static_cast<int64_t>(stall.iteration), stall.lasted, stall.missing);
  }
}

void Trainer::GiveState() {
  TrainingExchange* const exchange = [this] {
    absl::MutexLock lock(&mutex_);
    return exchange_;
  }();
  if (exchange == nullptr || local_->is_joining()) return;
  exchange->OfferState([this]() -> absl::StatusOr<WorkerState> { return local_->state(); }, [] {});
}

TrainingTotals Trainer::Totals() {
  absl::MutexLock lock(&mutex_);
  return totals_;
}

absl::StatusOr<TrainingSummary> Trainer::Run() {
  RETURN_IF_ERROR(JoinAndTrain());
  summary_.skipped_iterations = gradient_check_.skipped();
  summary_.Complete(config_.proto().training().batch_size());
  return summary_;
}

absl::Status Trainer::JoinAndTrain() {
  const bool gives_state = local_ != nullptr && config_.workers() > 1 &&
                           config_.proto().update().policy() == Update::SYNC;
  const absl::StatusOr<std::unique_ptr<TrainingExchange>> connected = options_.connect(
      {.config = &config_,
       .rank = options_.rank,
       .clock = options_.clock,
       .addresses = options_.addresses,
       .buffers = &buffers_,
       .trace = options_.trace,
       .on_parameters_written =
           [this](int64_t begin, int64_t count) {
             if (local_ == nullptr) backend_->ParametersWritten(begin, count);
           },
       .on_stall = [this](const Stall& stall) { ShowStall(stall); },
       .while_waiting = gives_state ? [this] { GiveState(); } : std::function<void()>(),
       .stop = stop_.get_token()});
  // After Stop the exchange's error is only a consequence.
  const auto reason = [&](const absl::Status& error) {
    const absl::Status stopped = StopReason();
    return stopped.ok() ? error : stopped;
  };
  if (!connected.ok()) return reason(connected.status());

  TrainingExchange& exchange = **connected;
  absl::StatusOr<int64_t> start = exchange.next_iteration();
  if (local_ != nullptr) local_->set_joining(*start > 0);
  absl::Status outcome;
  while (true) {
    outcome = start.ok() ? ReportAndTrain(exchange, *start) : start.status();
    // A worker that has finished can leave only if the run has not gone back meanwhile.
    const bool trained = outcome.ok();
    if (trained) outcome = exchange.Leave(outcome);
    if (outcome.ok() || !start.ok() || !exchange.went_back() || !StopReason().ok()) {
      if (!trained) {
        outcome = reason(outcome);
        exchange.Leave(outcome).IgnoreError();
      }
      break;
    }
    start = GoBack(exchange);
  }
  summary_.traffic = exchange.traffic();
  return outcome;
}

absl::StatusOr<int64_t> Trainer::GoBack(TrainingExchange& exchange) {
  ASSIGN_OR_RETURN(const int64_t start, exchange.Resume());
  spdlog::info("the run has gone back: goes on after iteration {}", start * steps_);
  batches_->DropPrefetched();
  view_.reset();
  summary_.final_accuracy.reset();
  // The backend must not take parts of the parameters that came before for parts of those that come
  // now.
  RETURN_IF_ERROR(UseBuffers());
  return start;
}

absl::Status Trainer::ReportAndTrain(TrainingExchange& exchange, int64_t start) {
  SetExchange(&exchange);
  const absl::Cleanup forget_exchange = [this] { SetExchange(nullptr); };
  const UsageReporter reporter({
      .backend = backend_.get(),
      .clock = options_.clock,
      .totals = [this] { return Totals(); },
      .send = [&exchange](const WorkerUsage& usage,
                          const std::stop_token& stop) { return exchange.Report(usage, stop); },
  });
  return Train(exchange, start);
}

std::unique_ptr<TrainingSchedule> Trainer::MakeSchedule(TrainingExchange& exchange, int64_t start) {
  if (local_ == nullptr) {
    return std::make_unique<ExchangeSchedule>(
        ExchangeSchedule::Options{.config = &config_,
                                  .clock = options_.clock,
                                  .exchange = &exchange,
                                  .gradients = buffers_.gradients.span(),
                                  .parameters = buffers_.parameters.span()});
  }
  return std::make_unique<LocalRounds>(
      LocalRounds::Options{.config = &config_,
                           .clock = options_.clock,
                           .exchange = &exchange,
                           .backend = backend_.get(),
                           .model = local_.get(),
                           .pushed = buffers_.gradients.span(),
                           .received = buffers_.parameters.span(),
                           .start = start * steps_,
                           .length = [this] { return batches_->length().iterations; }});
}

absl::Status Trainer::Train(TrainingExchange& exchange, int64_t start) {
  RETURN_IF_ERROR(exchange.Pull(buffers_.parameters.span()));
  start = exchange.next_iteration();  // under QUORUM others may have gone on meanwhile
  ProgressReporter::Options progress_options = options_.progress;
  progress_options.length = batches_->length();
  ProgressReporter progress(progress_options, options_.clock);
  SetProgress(&progress);
  const absl::Cleanup forget_progress = [this] { SetProgress(nullptr); };
  RETURN_IF_ERROR(FollowWorkerSets(exchange, progress));
  if (start > 0) {
    const int64_t all = batches_->length().iterations;
    spdlog::log(start * steps_ > all ? spdlog::level::warn : spdlog::level::info,
                "goes on after iteration {} of {}", start * steps_, all);
  }

  const std::unique_ptr<TrainingSchedule> made = MakeSchedule(exchange, start);
  TrainingSchedule& schedule = *made;
  for (int64_t iteration = start * steps_;;) {
    RETURN_IF_ERROR(FollowWorkerSets(exchange, progress));
    if (PausesAt(iteration)) {
      RETURN_IF_ERROR(exchange.AwaitAll());
      RETURN_IF_ERROR(FollowWorkerSets(exchange, progress));
    }
    if (exchange.is_behind()) {
      RETURN_IF_ERROR(exchange.Pull(buffers_.parameters.span()));
      spdlog::debug("iteration {} went on without this worker, which goes on at iteration {}",
                    iteration - 1, exchange.next_iteration());
      schedule.CaughtUp();
      iteration = exchange.next_iteration() * steps_;
      continue;
    }
    if (PausesAt(iteration)) {
      progress.Flush();
      if (iteration >= batches_->length().iterations)
        return Conclude(exchange, schedule, iteration);
      if (batches_->Evaluates(iteration)) {
        RETURN_IF_ERROR(Evaluate(exchange, schedule, iteration).status());
      }
    }
    ASSIGN_OR_RETURN(const Outcome outcome, Iterate(exchange, schedule, iteration, progress));
    if (outcome == Outcome::kTrained) iteration = schedule.next();
  }
}

absl::Status Trainer::FollowWorkerSets(TrainingExchange& exchange, ProgressReporter& progress) {
  // If the view changes after this, its worker sets may be taken over twice, but not missed.
  const uint64_t view = exchange.view_number();
  if (view_ == view) return absl::OkStatus();
  std::vector<WorkerSet> worker_sets = exchange.worker_sets();  // by exchanges
  is_first_ = !worker_sets.empty() && worker_sets.back().rank_size() > 0 &&
              worker_sets.back().rank(0) == static_cast<uint32_t>(options_.rank);
  for (WorkerSet& each : worker_sets) each.set_from_iteration(each.from_iteration() * steps_);
  RETURN_IF_ERROR(batches_->SetWorkerSets(worker_sets));
  view_ = view;
  progress.SetLength(batches_->length());
  return absl::OkStatus();
}

bool Trainer::PausesAt(int64_t iteration) const {
  const TrainingLength& length = batches_->length();
  if (iteration >= length.iterations) return true;
  if (evaluation_ == nullptr || iteration == 0 || iteration % steps_ != 0) return false;
  // Whether something after which a worker evaluates has ended since the exchange before.
  const int64_t before = iteration - steps_;
  const auto has_ended = [](int64_t now, int64_t then, int64_t every) {
    return every > 0 && now / every != then / every;
  };
  const Training& training = config_.proto().training();
  return has_ended(length.epoch(iteration), length.epoch(before),
                   training.evaluate_every_epochs()) ||
         has_ended(iteration, before, training.evaluate_every_iterations());
}

absl::StatusOr<Trainer::Outcome> Trainer::Iterate(TrainingExchange& exchange,
                                                  TrainingSchedule& schedule, int64_t iteration,
                                                  ProgressReporter& progress) {
  const absl::Time start = options_.clock->Now();
  ASSIGN_OR_RETURN(const Batch batch, batches_->Load(iteration, *backend_));

  const absl::Time loaded = options_.clock->Now();
  schedule.Start(iteration);
  IterationHooks hooks({.schedule = &schedule,
                        .last_layer = last_layer_,
                        .pass_queued = [&] { batches_->Prefetch(iteration + 1, *backend_); },
                        .settled = [&]() -> absl::StatusOr<bool> {
                          RETURN_IF_ERROR(FollowWorkerSets(exchange, progress));
                          return !batches_->IsDealtAnew() && !exchange.is_behind();
                        }});
  const absl::StatusOr<BatchResult> result = Compute(schedule, hooks, batch, iteration);
  if (hooks.is_dealt_anew()) return Outcome::kDealtAnew;
  RETURN_IF_ERROR(result.status());
  const bool contributes = gradient_check_.Prepare(schedule.gradients());
  gradient_check_.Count(iteration, result->loss, contributes, progress);

  const absl::Time computed = options_.clock->Now();
  RETURN_IF_ERROR(schedule.Finish(contributes, /*everything=*/PausesAt(iteration + 1)));
  const absl::Time end = options_.clock->Now();
  if (options_.trace != nullptr) {
    options_.trace->Span(Trace::Row::kThread, "load the batch", Trace::kWhole, iteration, start,
                         loaded);
    options_.trace->Span(Trace::Row::kThread, "wait for the exchange", Trace::kWhole, iteration,
                         computed, end);
  }
  Count({.iteration = iteration + 1,
         .loss = result->loss,
         .images = config_.proto().training().batch_size(),
         .compute_seconds = absl::ToDoubleSeconds(end - loaded - schedule.waited()),
         .exchange_wait_seconds = absl::ToDoubleSeconds(schedule.waited())},
        end - start, progress);
  return Outcome::kTrained;
}

void Trainer::Count(const IterationProgress& iteration, absl::Duration lasted,
                    ProgressReporter& progress) {
  if (summary_.iterations == 0) summary_.began = options_.clock->Now() - lasted;
  summary_.iteration_seconds.push_back(absl::ToDoubleSeconds(lasted));
  ++summary_.iterations;
  summary_.seconds += summary_.iteration_seconds.back();
  summary_.compute_seconds += iteration.compute_seconds;
  summary_.exchange_wait_seconds += iteration.exchange_wait_seconds;
  summary_.final_loss = iteration.loss;
  {
    absl::MutexLock lock(&mutex_);
    totals_ = {.images = summary_.iterations * config_.proto().training().batch_size(),
               .seconds = summary_.seconds,
               .exchange_wait_seconds = summary_.exchange_wait_seconds};
  }
  progress.Report(iteration);
}

absl::StatusOr<BatchResult> Trainer::Compute(TrainingSchedule& schedule, LayerHooks& hooks,
                                             const Batch& batch, int64_t iteration) {
  std::optional<TracedHooks> traced;
  if (options_.trace != nullptr) traced.emplace(&hooks, options_.trace, iteration);
  return backend_->ForwardBackward(batch, schedule.parameters(), iteration, schedule.gradients(),
                                   traced ? *traced : hooks);
}

absl::StatusOr<double> Trainer::Evaluate(TrainingExchange& exchange, TrainingSchedule& schedule,
                                         int64_t iteration) {
  // Others have updated the parameters since this worker's last reply. What a fragment is counted
  // from must stay.
  const LocalSteps& local = config_.proto().local();
  if (!config_.is_synchronous() && local.fragments() == 1 && local.overlap_steps() == 0) {
    RETURN_IF_ERROR(exchange.Pull(buffers_.parameters.span()));
  }
  if (!evaluation_->is_open()) {
    RETURN_IF_ERROR(evaluation_->Open());
    RETURN_IF_ERROR(UseBuffers());
  }
  schedule.SwapReceived();
  absl::StatusOr<double> accuracy = evaluation_->Run(*backend_, schedule.parameters(), iteration,
                                                     [this] { return StopReason(); });
  schedule.SwapReceived();
  if (accuracy.ok()) {
    summary_.evaluations.push_back({iteration, summary_.seconds, *accuracy});
  }
  return accuracy;
}

absl::Status Trainer::Conclude(TrainingExchange& exchange, TrainingSchedule& schedule,
                               int64_t iteration) {
  // The worker set that would go on: it changes before a round only.
  const int64_t all = batches_->length().iterations;
  const int64_t next = (all + steps_ - 1) / steps_ * steps_;
  if (next > all && is_first_ && config_.is_synchronous() &&
      config_.proto().recovery().has_checkpoint()) {
    spdlog::info(
        "checkpoints count whole rounds (local.steps): a run that resumes goes on after "
        "iteration {}, not {}",
        next, all);
  }
  const bool evaluates = evaluation_ != nullptr && batches_->Evaluates(next);
  if (evaluates) {
    ASSIGN_OR_RETURN(summary_.final_accuracy, Evaluate(exchange, schedule, iteration));
  }
  RETURN_IF_ERROR(gradient_check_.CheckSkipped());
  if (!evaluates) return absl::OkStatus();
  // As a float, of which a config's 0.97 is one.
  const float required = config_.proto().training().required_accuracy();
  if (static_cast<float>(*summary_.final_accuracy) < required) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the accuracy of %.4f is below training.required_accuracy, %.4f",
                        *summary_.final_accuracy, required));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
