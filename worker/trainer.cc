// One iteration, step by step:
//   1. Load this worker's batch, which the data.threads have read ahead.
//   2. Run the forward and backward pass, which computes the gradient of the batch's mean loss.
//      Under the schedules BACKWARD and FULL, each layer's gradient is pushed as soon as it exists.
//      Under FULL, a layer's forward pass waits for the parameters of the previous iteration
//      (ExchangeSchedule).
//   3. Clip the gradient and check that it is finite, if the config asks for it.
//   4. Push the gradient under SEQUENTIAL (worker/exchange/exchange.cc). Receive the updated
//      parameters under SEQUENTIAL and BACKWARD.
//   5. On rank 0, at the end of some epochs: receive all parameters and evaluate.

#include "worker/trainer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/wire/encoding.h"
#include "spdlog/spdlog.h"
#include "worker/data/batch_order.h"
#include "worker/gradient_norm.h"
#include "worker/processor_share.h"
#include "worker/traced_hooks.h"

namespace ps {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Forwards to the schedule's hooks, and loads the next batch while a device computes.
class IterationHooks final : public LayerHooks {
 public:
  IterationHooks(LayerHooks* schedule, absl::FunctionRef<void()> pass_queued)
      : schedule_(*schedule), pass_queued_(pass_queued) {}

  absl::Status AwaitParameters(int layer) override { return schedule_.AwaitParameters(layer); }
  void PassQueued() override { pass_queued_(); }
  absl::Status GradientReady(int layer) override { return schedule_.GradientReady(layer); }

 private:
  LayerHooks& schedule_;
  const absl::FunctionRef<void()> pass_queued_;
};

// Returns the number of threads that load data. If a device computes, the processors are free for
// it.
int LoaderThreads(const Config& config) {
  const int threads = config.proto().data().threads();
  if (threads > 0 || config.proto().compute().backend() != Compute::CUDA) return threads;
  return ProcessorShare(config.workers());
}

}  // namespace

std::string TrainingSummary::ToJson() const {
  nlohmann::ordered_json json = {{"iterations", iterations},
                                 {"skipped_iterations", skipped_iterations},
                                 {"median_iteration_seconds", median_iteration_seconds},
                                 {"seconds", seconds},
                                 {"images_per_second", images_per_second},
                                 {"compute_seconds", compute_seconds},
                                 {"exchange_wait_seconds", exchange_wait_seconds},
                                 {"final_loss", final_loss},  // null if it is not finite
                                 {"pushes", traffic.pushes},
                                 {"bytes_out", traffic.bytes_out},
                                 {"bytes_in", traffic.bytes_in}};
  if (final_accuracy.has_value()) json["final_accuracy"] = *final_accuracy;
  json["iteration_seconds"] = iteration_seconds;
  return json.dump() + "\n";
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const Options& options) {
  const Config& config = *options.config;
  if (options.rank < 0 || options.rank >= config.workers()) {
    return absl::OutOfRangeError(absl::StrCat("there is no worker ", options.rank,
                                              ": the config has ", config.workers(),
                                              " workers, ranks 0 to ", config.workers() - 1));
  }
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  if (config.proto().data().source_case() != Data::SOURCE_NOT_SET) {
    ASSIGN_OR_RETURN(trainer->data_, OpenDatasets(config));
  }
  RETURN_IF_ERROR(trainer->MakeLoaders());
  const BackendOptions backend_options = {.rank = options.rank,
                                          .clock = options.clock,
                                          .trace = options.trace,
                                          .stop = trainer->stop_.get_token()};
  ASSIGN_OR_RETURN(trainer->backend_, options.create_backend(config, backend_options));
  ASSIGN_OR_RETURN(trainer->buffers_, Exchange::AllocateBuffers(config, options.addresses));
  HostBuffers buffers = {.parameters = trainer->buffers_.parameters.span(),
                         .gradients = trainer->buffers_.gradients.span()};
  for (const auto& loader : {std::cref(trainer->loader_), std::cref(trainer->test_loader_)}) {
    if (loader.get() == nullptr) continue;
    for (const absl::Span<float> images : loader.get()->buffers()) buffers.images.push_back(images);
  }
  RETURN_IF_ERROR(trainer->backend_->UseBuffers(buffers));
  return trainer;
}

absl::Status Trainer::MakeLoaders() {
  const Training& training = config_.proto().training();
  if (data_.train == nullptr) {
    // Without data there are no epochs: all iterations count as one.
    total_iterations_ = iterations_per_epoch_ = training.iterations();
    return absl::OkStatus();
  }
  const Data& data = config_.proto().data();
  const ShuffledOrder order({.images = data_.train->size(),
                             .rank = options_.rank,
                             .workers = config_.workers(),
                             .batch_size = training.batch_size(),
                             .seed = training.seed(),
                             .augment = data.has_augment()});
  iterations_per_epoch_ = order.batches_per_epoch();
  total_iterations_ =
      training.has_epochs() ? training.epochs() * iterations_per_epoch_ : training.iterations();

  BatchLoader::Options options = {.dataset = data_.train.get(),
                                  .order = order,
                                  .batch_size = training.batch_size(),
                                  .end = total_iterations_,
                                  .threads = LoaderThreads(config_)};
  ASSIGN_OR_RETURN(loader_, BatchLoader::Create(options));
  if (options_.rank != 0 || data_.test == nullptr) return absl::OkStatus();

  options.dataset = data_.test.get();
  options.order = SequentialOrder(data_.test->size(), training.batch_size());
  options.end = (data_.test->size() + training.batch_size() - 1) / training.batch_size();
  ASSIGN_OR_RETURN(test_loader_, BatchLoader::Create(options));
  return absl::OkStatus();
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

void Trainer::SetExchange(Exchange* exchange) {
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

TrainingTotals Trainer::Totals() {
  absl::MutexLock lock(&mutex_);
  return totals_;
}

absl::StatusOr<TrainingSummary> Trainer::Run() {
  RETURN_IF_ERROR(JoinAndTrain());
  summary_.median_iteration_seconds = Median(summary_.iteration_seconds);
  const int64_t images = summary_.iterations * config_.proto().training().batch_size();
  summary_.images_per_second = summary_.seconds > 0 ? images / summary_.seconds : 0;
  return summary_;
}

absl::Status Trainer::JoinAndTrain() {
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = Exchange::Connect(
      {.config = &config_,
       .rank = options_.rank,
       .clock = options_.clock,
       .addresses = options_.addresses,
       .buffers = &buffers_,
       .trace = options_.trace,
       .on_parameters_written =
           [this](int64_t begin, int64_t count) { backend_->ParametersWritten(begin, count); },
       .on_stall = [this](const Stall& stall) { ShowStall(stall); },
       .stop = stop_.get_token()});
  absl::Status outcome = exchange.status();
  if (exchange.ok()) {
    SetExchange(exchange->get());
    {
      const UsageReporter reporter({
          .backend = backend_.get(),
          .clock = options_.clock,
          .totals = [this] { return Totals(); },
          .send = [&exchange](
                      const WorkerUsage& usage,
                      const std::stop_token& stop) { return (*exchange)->Report(usage, stop); },
      });
      outcome = Train(**exchange);
    }
    SetExchange(nullptr);
  }
  if (!outcome.ok()) {
    // After Stop the exchange's error is only a consequence.
    const absl::Status stopped = StopReason();
    if (!stopped.ok()) outcome = stopped;
  }
  if (!exchange.ok()) return outcome;
  const absl::Status left = (*exchange)->Leave(outcome);
  summary_.traffic = (*exchange)->traffic();
  return outcome.ok() ? left : outcome;
}

absl::Status Trainer::Train(Exchange& exchange) {
  RETURN_IF_ERROR(exchange.Pull(buffers_.parameters.span()));
  ProgressReporter::Options progress_options = options_.progress;
  progress_options.total_iterations = total_iterations_;
  progress_options.iterations_per_epoch = iterations_per_epoch_;
  ProgressReporter progress(progress_options, options_.clock);
  SetProgress(&progress);
  const absl::Cleanup forget_progress = [this] { SetProgress(nullptr); };

  ExchangeSchedule schedule({.config = &config_,
                             .clock = options_.clock,
                             .exchange = &exchange,
                             .gradients = buffers_.gradients.span(),
                             .parameters = buffers_.parameters.span()});
  const bool evaluates = test_loader_ != nullptr;
  const int64_t every = config_.proto().training().evaluate_every_epochs() * iterations_per_epoch_;
  const int64_t start = exchange.start_iteration();
  if (start > 0) spdlog::info("goes on after iteration {} of {}", start, total_iterations_);
  for (int64_t i = start; i < total_iterations_; ++i) {
    const int64_t done = i + 1;
    const bool last = done == total_iterations_;
    const bool evaluates_now = evaluates && every > 0 && done % every == 0 && !last;
    RETURN_IF_ERROR(Iterate(schedule, i, /*settles=*/last || evaluates_now, progress));
    if (evaluates_now) {
      progress.Flush();
      RETURN_IF_ERROR(Evaluate(exchange, done));
    }
  }
  progress.Flush();
  if (evaluates) {
    RETURN_IF_ERROR(Evaluate(exchange, total_iterations_));
  }
  RETURN_IF_ERROR(CheckSkipped());
  if (!evaluates) return absl::OkStatus();
  const double required = config_.proto().training().required_accuracy();
  if (*summary_.final_accuracy < required) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the accuracy of %.4f is below training.required_accuracy, %.4f",
                        *summary_.final_accuracy, required));
  }
  return absl::OkStatus();
}

absl::Status Trainer::Iterate(ExchangeSchedule& schedule, int64_t iteration, bool settles,
                              ProgressReporter& progress) {
  const absl::Time start = options_.clock->Now();
  ASSIGN_OR_RETURN(const Batch batch, LoadBatch(iteration));

  const absl::Time loaded = options_.clock->Now();
  schedule.Start(iteration);
  const auto prefetch = [&] { PrefetchBatch(iteration + 1); };
  IterationHooks hooks(&schedule, prefetch);
  ASSIGN_OR_RETURN(const BatchResult result, Compute(hooks, batch, iteration));
  const bool contributes = PrepareGradient();
  NoteDivergence(iteration, result.loss, contributes, progress);

  const absl::Time computed = options_.clock->Now();
  RETURN_IF_ERROR(schedule.Finish(contributes, settles));
  if (options_.trace != nullptr) {
    options_.trace->Span(Trace::Row::kThread, "load the batch", Trace::kWhole, iteration, start,
                         loaded);
    options_.trace->Span(Trace::Row::kThread, "wait for the exchange", Trace::kWhole, iteration,
                         computed, options_.clock->Now());
  }
  const absl::Time end = options_.clock->Now();
  const double compute_seconds = absl::ToDoubleSeconds(end - loaded - schedule.waited());
  const double wait_seconds = absl::ToDoubleSeconds(schedule.waited());
  summary_.iteration_seconds.push_back(absl::ToDoubleSeconds(end - start));
  ++summary_.iterations;
  summary_.seconds += summary_.iteration_seconds.back();
  summary_.compute_seconds += compute_seconds;
  summary_.exchange_wait_seconds += wait_seconds;
  summary_.final_loss = result.loss;
  {
    absl::MutexLock lock(&mutex_);
    totals_ = {.images = summary_.iterations * config_.proto().training().batch_size(),
               .seconds = summary_.seconds,
               .exchange_wait_seconds = summary_.exchange_wait_seconds};
  }
  progress.Report({.iteration = iteration + 1,
                   .loss = result.loss,
                   .images = config_.proto().training().batch_size(),
                   .compute_seconds = compute_seconds,
                   .exchange_wait_seconds = wait_seconds});
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> Trainer::Compute(LayerHooks& hooks, const Batch& batch,
                                             int64_t iteration) {
  if (options_.trace == nullptr) {
    return backend_->ForwardBackward(batch, buffers_.parameters.span(), iteration,
                                     buffers_.gradients.span(), hooks);
  }
  TracedHooks traced(&hooks, options_.trace, iteration);
  return backend_->ForwardBackward(batch, buffers_.parameters.span(), iteration,
                                   buffers_.gradients.span(), traced);
}

absl::StatusOr<Batch> Trainer::LoadBatch(int64_t iteration) {
  if (loader_ == nullptr) return Batch();
  absl::StatusOr<Batch> batch = std::exchange(next_batch_, absl::CancelledError());
  return std::exchange(next_iteration_, -1) == iteration ? batch : loader_->Load(iteration);
}

void Trainer::PrefetchBatch(int64_t iteration) {
  if (loader_ == nullptr || iteration >= total_iterations_) return;
  next_iteration_ = iteration;
  next_batch_ = loader_->Load(iteration);
  if (next_batch_.ok()) backend_->Prefetch(*next_batch_);
}

bool Trainer::PrepareGradient() {
  const Update& update = config_.proto().update();
  const bool may_skip = update.non_finite() == Update::SKIP;
  const double limit = update.clip_global_norm();
  if (!may_skip && limit == 0) return true;
  double parameters = 0, statistics = 0;  // squares of norms
  for (const Tensor& tensor : config_.model().tensors()) {
    const double norm = GlobalNorm(buffers_.gradients.span().subspan(tensor.offset, tensor.size));
    (tensor.role == TensorRole::kParameter ? parameters : statistics) += norm * norm;
  }
  // If the gradient may not be skipped, the shard refuses it with the reason.
  if (!std::isfinite(parameters + statistics)) return !may_skip;
  if (const double norm = std::sqrt(parameters); limit > 0 && norm > limit) {
    for (const Tensor& tensor : config_.model().tensors()) {
      if (tensor.role != TensorRole::kParameter) continue;
      Scale(static_cast<float>(limit / norm),
            buffers_.gradients.span().subspan(tensor.offset, tensor.size));
    }
  }
  // A value that overflows in the encoding counts as not finite.
  return !may_skip ||
         FitsEncoding(config_.proto().exchange().gradient_encoding(), buffers_.gradients.span());
}

void Trainer::NoteDivergence(int64_t iteration, double loss, bool contributes,
                             ProgressReporter& progress) {
  const int64_t iterations = summary_.iterations + 1;  // this one included
  if (!std::isfinite(loss) && loss_notice_.Grew(++non_finite_losses_)) {
    progress.Flush();
    spdlog::warn("iteration {}: the loss is {}: {} of {} so far", iteration, loss,
                 non_finite_losses_, iterations);
  }
  if (!contributes && skip_notice_.Grew(++summary_.skipped_iterations)) {
    progress.Flush();
    spdlog::warn(
        "iteration {}: the gradient is not finite{} and is left out (update.non_finite: SKIP): {} "
        "of {} so far",
        iteration, RangeOf(config_.proto().exchange().gradient_encoding()),
        summary_.skipped_iterations, iterations);
  }
}

absl::Status Trainer::CheckSkipped() const {
  if (2 * summary_.skipped_iterations <= summary_.iterations) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the training has diverged: ", summary_.skipped_iterations, " of ",
                   summary_.iterations, " gradients were not finite and were left out"));
}

absl::Status Trainer::Evaluate(Exchange& exchange, int64_t iteration) {
  // Under ASYNC others have updated the parameters since this worker's last reply.
  if (config_.proto().update().policy() == Update::ASYNC) {
    RETURN_IF_ERROR(exchange.Pull(buffers_.parameters.span()));
  }
  const int64_t images = data_.test->size();
  const int64_t batch_size = config_.proto().training().batch_size();
  double loss = 0;
  int64_t correct = 0;
  for (int64_t i = 0; i * batch_size < images; ++i) {
    RETURN_IF_ERROR(StopReason());
    ASSIGN_OR_RETURN(const Batch batch, test_loader_->Load(i));
    ASSIGN_OR_RETURN(const BatchResult result,
                     backend_->Evaluate(batch, buffers_.parameters.span()));
    loss += result.loss * batch.size;
    correct += result.correct;
  }
  summary_.final_accuracy = static_cast<double>(correct) / images;
  spdlog::info("iteration {}: accuracy {:.2f} % ({} of {} {} images), loss {:.4f}", iteration,
               *summary_.final_accuracy * 100, correct, images,
               config_.proto().data().holdout() > 0 ? "held-out" : "test", loss / images);
  return absl::OkStatus();
}

}  // namespace ps
