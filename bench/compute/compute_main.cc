// compute measures how fast a backend computes gradients, without exchange.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/float_buffer.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/placement/model/initializer.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/process/process_setup.h"
#include "worker/compute/backend.h"
#include "worker/training/create_backend.h"

namespace evenshard {
namespace {

// Prefetches the same batch during each pass, as a trainer prefetches the next one.
class SameBatchAgain : public LayerHooks {
 public:
  SameBatchAgain(ComputeBackend* backend, const Batch& batch) : backend_(*backend), batch_(batch) {}

  void PassQueued() override { backend_.Prefetch(batch_); }

 private:
  ComputeBackend& backend_;
  const Batch batch_;
};

double SquaredNorm(absl::Span<const float> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// The results of a forward and backward pass with the initial parameters of a run.
struct InitialPass {
  double loss = 0;
  double gradient_norm = 0;  // L2
};

// Measures a backend that computes the gradients of one batch again and again, without exchange. A
// backend that computes on a device copies the batch there in every iteration; parameters and
// gradients stay on the device. Not thread-safe.
class ComputeBench {
 public:
  // Creates the backend of `config`, the initial parameters of a run, and a batch of random images
  // whose pixels have mean 0 and variance 1. `config` must outlive the result.
  // Errors: those of CreateComputeBackend and UseBuffers; RESOURCE_EXHAUSTED if there is not enough
  // memory; INVALID_ARGUMENT for the backend EMULATED, which computes nothing.
  static absl::StatusOr<std::unique_ptr<ComputeBench>> Create(const PlannedConfig& config);

  // Checks that the backend computes gradients: if all scores are 0, the loss is that of guessing,
  // ln(classes); equal passes give equal gradients, but for rounding; a small step against the
  // gradient lowers the loss. Returns the results before that step.
  // Errors: INTERNAL, with what was found instead; those of the passes.
  absl::StatusOr<InitialPass> Verify();

  // Computes `iterations` passes and returns the images per second.
  // REQUIRES: iterations >= 1; Verify has succeeded.
  absl::StatusOr<double> ImagesPerSecond(int iterations);

 private:
  explicit ComputeBench(const PlannedConfig& config) : config_(config) {}

  Batch batch() const {
    return {
        .size = static_cast<int64_t>(labels_.size()), .images = images_.span(), .labels = labels_};
  }
  // Runs a pass after telling the backend that all parameters have changed.
  absl::StatusOr<BatchResult> PassWithNewParameters();

  const PlannedConfig& config_;
  const RealClock clock_;
  FloatBuffer parameters_, gradients_, images_;
  std::vector<int32_t> labels_;
  std::unique_ptr<ComputeBackend> backend_;  // last, because it may use the buffers
};

absl::StatusOr<std::unique_ptr<ComputeBench>> ComputeBench::Create(const PlannedConfig& config) {
  if (config.proto().compute().backend() == Compute::EMULATED) {
    return absl::InvalidArgumentError(
        "compute.backend: is EMULATED, which computes nothing, allowed: CPU, CUDA");
  }
  std::unique_ptr<ComputeBench> bench(new ComputeBench(config));
  const Model& model = config.model();
  const int64_t batch_size = config.proto().training().batch_size();
  for (const auto& [buffer, floats] :
       {std::pair(&bench->parameters_, model.buffer_size()),
        std::pair(&bench->gradients_, model.buffer_size()),
        std::pair(&bench->images_, batch_size * model.input().size())}) {
    ASSIGN_OR_RETURN(*buffer, FloatBuffer::Allocate(floats));
  }
  const uint64_t seed = config.proto().training().seed();
  for (const Tensor& tensor : model.tensors()) {
    InitializeParameters(seed, tensor, 0,
                         bench->parameters_.span().subspan(tensor.offset, tensor.size));
  }
  const absl::Span<float> pixels = bench->images_.span();
  CounterRandom(seed, "bench/images").FillUniform(0, pixels);
  for (float& pixel : pixels) pixel = std::sqrt(3.0f) * (2 * pixel - 1);
  const CounterRandom labels(seed, "bench/labels");
  for (int64_t i = 0; i < batch_size; ++i) {
    bench->labels_.push_back(static_cast<int32_t>(labels.Below(i, model.classes())));
  }

  ASSIGN_OR_RETURN(bench->backend_, CreateComputeBackend(config, {.clock = &bench->clock_}));
  RETURN_IF_ERROR(bench->backend_->UseBuffers({.parameters = bench->parameters_.span(),
                                               .gradients = bench->gradients_.span(),
                                               .images = {bench->images_.span()}}));
  return bench;
}

absl::StatusOr<BatchResult> ComputeBench::PassWithNewParameters() {
  backend_->ParametersWritten(0, config_.model().buffer_size());
  LayerHooks nothing;
  return backend_->ForwardBackward(batch(), parameters_.span(), /*iteration=*/0, gradients_.span(),
                                   nothing);
}

absl::StatusOr<InitialPass> ComputeBench::Verify() {
  const std::vector<float> initial(parameters_.span().begin(), parameters_.span().end());
  const std::vector<Layer>& layers = config_.model().layers();
  const auto scores = std::find_if(layers.rbegin(), layers.rend(),
                                   [](const Layer& layer) { return layer.tensor_count > 0; });
  const auto [begin, size] = config_.model().RangeOf(*scores);
  std::fill_n(parameters_.data() + begin, size, 0.0f);
  ASSIGN_OR_RETURN(const BatchResult guess, PassWithNewParameters());
  const double guessing = std::log(static_cast<double>(config_.model().classes()));
  if (!(std::abs(guess.loss - guessing) < 1e-3)) {
    return absl::InternalError(
        absl::StrFormat("with a last layer of zeros the loss is %g, expected: that of guessing, %g",
                        guess.loss, guessing));
  }

  std::copy(initial.begin(), initial.end(), parameters_.data());
  ASSIGN_OR_RETURN(const BatchResult start, PassWithNewParameters());
  const double norm = SquaredNorm(gradients_.span());
  if (!std::isfinite(start.loss) || !std::isfinite(norm) || norm == 0) {
    return absl::InternalError(
        absl::StrFormat("the loss is %g and the gradient's squared norm %g, expected: numbers, "
                        "and a norm above 0",
                        start.loss, norm));
  }

  const std::vector<float> first(gradients_.span().begin(), gradients_.span().end());
  RETURN_IF_ERROR(PassWithNewParameters().status());
  double difference = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    const double d = first[i] - gradients_.data()[i];
    difference += d * d;
  }
  constexpr double kRounding = 0.02;  // for sums in another order, of 16-bit values
  if (!(difference <= kRounding * kRounding * norm)) {
    return absl::InternalError(absl::StrFormat(
        "two passes over the same batch give gradients that differ by %g of their norm, allowed: "
        "%g",
        std::sqrt(difference / norm), kRounding));
  }

  // To first order, the step below lowers the loss by this fraction.
  constexpr double kFraction = 0.02;
  const float rate = static_cast<float>(kFraction * start.loss / norm);
  for (const Tensor& tensor : config_.model().tensors()) {
    if (tensor.role != TensorRole::kParameter) continue;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      parameters_.data()[i] -= rate * first[i];
    }
  }
  ASSIGN_OR_RETURN(const BatchResult stepped, PassWithNewParameters());
  std::copy(initial.begin(), initial.end(), parameters_.data());
  if (!(stepped.loss < start.loss)) {
    return absl::InternalError(absl::StrFormat(
        "a small step against the gradient takes the loss from %g to %g, expected: a lower one",
        start.loss, stepped.loss));
  }
  RETURN_IF_ERROR(
      backend_->UseBuffers({.parameters = parameters_.span(), .images = {images_.span()}}));
  backend_->ParametersWritten(0, config_.model().buffer_size());
  return InitialPass{.loss = start.loss, .gradient_norm = std::sqrt(norm)};
}

absl::StatusOr<double> ComputeBench::ImagesPerSecond(int iterations) {
  SameBatchAgain hooks(backend_.get(), batch());
  const absl::Time start = clock_.Now();
  for (int i = 0; i < iterations; ++i) {
    RETURN_IF_ERROR(backend_
                        ->ForwardBackward(batch(), parameters_.span(), /*iteration=*/i,
                                          gradients_.span(), hooks)
                        .status());
  }
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - start);
  return static_cast<double>(iterations) * static_cast<double>(labels_.size()) / seconds;
}

constexpr char kUsage[] =
    "Evenshard's compute --config=FILE: verifies the gradients of the config's compute backend\n"
    "and then measures its images per second in one worker, without exchange. An iteration\n"
    "consists of the forward and the backward pass, and on a GPU of the copy of the batch to it;\n"
    "parameters and gradients stay there. There is no update, and no data is loaded.\n"
    "Exit code: 0, 1 after a failure, 2 for a wrong command line or config.";

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  int iterations = 20;
  int warmup = 5;
  int rounds = 5;
  bool on_request = false;
};

int Fail(const absl::Status& status) {
  std::cerr << "compute: " << status.message() << "\n";
  return 1;
}

int Run(const CommandLine& command) {
  SetUpProcess();
  for (const auto& [flag, value] :
       {std::pair("iterations", command.iterations), std::pair("rounds", command.rounds)}) {
    if (value >= 1) continue;
    std::cerr << "--" << flag << "=" << value << ", allowed: at least 1\n";
    return 2;
  }
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Load(command.config, command.overrides);
  const absl::Status usable = config.ok() ? config->CheckOwnModel() : config.status();
  if (!usable.ok()) return PrintError(usable, 2);
  absl::StatusOr<std::unique_ptr<ComputeBench>> bench = ComputeBench::Create(*config);
  if (!bench.ok()) return Fail(bench.status());
  const absl::StatusOr<InitialPass> initial = (*bench)->Verify();
  if (!initial.ok()) return Fail(initial.status());
  if (command.warmup > 0) {
    const absl::StatusOr<double> warmed = (*bench)->ImagesPerSecond(command.warmup);
    if (!warmed.ok()) return Fail(warmed.status());
  }
  absl::PrintF(
      "verified: loss %.3f and gradient norm %.3g at the start, and a step lowers the loss\n",
      initial->loss, initial->gradient_norm);
  std::vector<double> rounds;
  for (int round = 0; round < command.rounds; ++round) {
    std::fflush(stdout);
    std::string request;
    if (command.on_request && !std::getline(std::cin, request)) break;
    const absl::StatusOr<double> rate = (*bench)->ImagesPerSecond(command.iterations);
    if (!rate.ok()) return Fail(rate.status());
    rounds.push_back(*rate);
    absl::PrintF("round %d: %.2f images/s\n", round + 1, *rate);
  }
  if (rounds.empty()) return 0;
  std::sort(rounds.begin(), rounds.end());
  const double median = (rounds[(rounds.size() - 1) / 2] + rounds[rounds.size() / 2]) / 2;
  absl::PrintF("%s, batch of %d: %.1f images/s (%.1f-%.1f), median of %d rounds\n",
               config->model().name(), config->proto().training().batch_size(), median,
               rounds.front(), rounds.back(), rounds.size());
  return 0;
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) {
  evenshard::CommandLine command;
  const evenshard::Flag flags[] = {
      {"config", "FILE",
       "a ClusterConfig; only model, compute, training and update.deterministic matter",
       &command.config, true},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated",
       &command.overrides},
      {"iterations", "N", "iterations of a round; default 20", &command.iterations},
      {"warmup", "N", "iterations before the first round; default 5", &command.warmup},
      {"rounds", "N", "how many rounds; default 5", &command.rounds},
      {"on-request", "",
       "waits for a line of standard input before each round, so that rounds of several programs "
       "can be taken in turn; ends when the input ends",
       &command.on_request},
  };
  if (const auto code = evenshard::StartProgram("compute", evenshard::kUsage, flags, argc, argv)) {
    return *code;
  }
  return evenshard::Run(command);
}
