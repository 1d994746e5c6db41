#include "bench/compute/compute_bench.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/placement/initializer.h"
#include "worker/compute/create_backend.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<ComputeBench>> ComputeBench::Create(const PlannedConfig& config,
                                                                   const Clock* clock) {
  if (config.proto().compute().backend() == Compute::EMULATED) {
    return absl::InvalidArgumentError(
        "compute.backend: is EMULATED, which computes nothing, allowed: CPU, CUDA");
  }
  std::unique_ptr<ComputeBench> bench(new ComputeBench(config, clock));
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

  ASSIGN_OR_RETURN(bench->backend_, CreateComputeBackend(config, {.clock = clock}));
  RETURN_IF_ERROR(bench->backend_->UseBuffers({.parameters = bench->parameters_.span(),
                                               .gradients = bench->gradients_.span(),
                                               .images = {bench->images_.span()}}));
  return bench;
}

Batch ComputeBench::batch() const {
  return {
      .size = static_cast<int64_t>(labels_.size()), .images = images_.span(), .labels = labels_};
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
  const absl::Time start = clock_->Now();
  for (int i = 0; i < iterations; ++i) {
    RETURN_IF_ERROR(backend_
                        ->ForwardBackward(batch(), parameters_.span(), /*iteration=*/i,
                                          gradients_.span(), hooks)
                        .status());
  }
  const double seconds = absl::ToDoubleSeconds(clock_->Now() - start);
  return static_cast<double>(iterations) * static_cast<double>(labels_.size()) / seconds;
}

}  // namespace evenshard
