#include "worker/compute/cpu_backend.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "oneapi/dnnl/dnnl_debug.h"
#include "worker/compute/cpu_activation.h"
#include "worker/compute/cpu_convolution.h"
#include "worker/compute/cpu_dropout.h"
#include "worker/compute/cpu_linear.h"
#include "worker/compute/cpu_pooling.h"
#include "worker/compute/softmax_cross_entropy.h"
#include "worker/compute/thread_count.h"

namespace ps {
namespace {

using dnnl::memory;

// Runs a step of `where` (a layer's name). The one place where oneDNN's exceptions
// become a status.
template <typename Step>
absl::Status RunGuarded(absl::string_view where, Step step) {
  try {
    step();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    const std::string text = absl::StrCat(where, ": oneDNN: ", error.message, " (status ",
                                          dnnl_status2str(error.status), ")");
    return error.status == dnnl_out_of_memory ? absl::ResourceExhaustedError(text)
                                              : absl::InternalError(text);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(where, ": out of memory"));
  }
}

absl::Status CheckTrainable(const Model& model) {
  for (const Layer& layer : model.layers()) {
    switch (layer.spec.kind_case()) {
      case LayerSpec::kConv:
      case LayerSpec::kLinear:
      case LayerSpec::kMaxPool:
      case LayerSpec::kRelu:
      case LayerSpec::kDropout:
        break;
      default: {
        const auto* kind = LayerSpec::descriptor()->FindFieldByNumber(layer.spec.kind_case());
        return absl::UnimplementedError(absl::StrCat(
            "the CPU backend cannot train the model ", model.name(), ": its layer ", layer.name,
            " is a ", kind->name(),
            "; it can train conv, linear, max_pool, relu and dropout. The EMULATED backend takes "
            "any model"));
      }
    }
  }
  if (!model.sequential()) {
    return absl::UnimplementedError(
        absl::StrCat("the CPU backend cannot train the model ", model.name(),
                     ": it has residual blocks. The EMULATED backend takes any model"));
  }
  return absl::OkStatus();
}

// REQUIRES: CheckTrainable.
std::unique_ptr<CpuLayer> MakeLayer(CpuDevice* device, const Model& model, const Layer& layer,
                                    const CpuBackend::Options& options, const Activation& input) {
  switch (layer.spec.kind_case()) {
    case LayerSpec::kConv:
      return MakeCpuConvolution(device, model, layer, input);
    case LayerSpec::kLinear:
      return MakeCpuLinear(device, model, layer, input);
    case LayerSpec::kMaxPool:
      return MakeCpuPooling(device, layer, input);
    case LayerSpec::kDropout:
      return MakeCpuDropout(device, layer, options.seed, options.rank, input);
    default:
      return MakeCpuRelu(device, input);
  }
}

absl::Status CheckBuffer(absl::string_view what, size_t floats, const Model& model) {
  if (static_cast<int64_t>(floats) == model.buffer_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " buffer has ", floats,
                                                 " floats, the model ", model.name(), " needs ",
                                                 model.buffer_size()));
}

float* Floats(const memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

}  // namespace

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const Model& model,
                                                               const Options& options) {
  if (absl::Status status = CheckTrainable(model); !status.ok()) return status;
  if (options.batch_size < 1 || options.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size ", options.batch_size,
                                                   " and threads ", options.threads,
                                                   " must both be at least 1"));
  }
  const ThreadCountScope threads(options.threads);
  std::unique_ptr<CpuBackend> backend;
  absl::Status status =
      RunGuarded("images", [&] { backend.reset(new CpuBackend(model, options)); });
  if (status.ok()) status = backend->MakeLayers();
  if (!status.ok()) return status;
  return backend;
}

CpuBackend::CpuBackend(const Model& model, const Options& options)
    : model_(model),
      options_(options),
      images_(device_.Allocate(PlainFormat({options.batch_size, model.input().channels,
                                            model.input().height, model.input().width}))) {}

absl::Status CpuBackend::MakeLayers() {
  Activation activation = {images_, memory()};
  for (const Layer& layer : model_.layers()) {
    absl::Status status = RunGuarded(layer.name, [&] {
      layers_.push_back(MakeLayer(&device_, model_, layer, options_, activation));
    });
    if (!status.ok()) return status;
    activation = layers_.back()->output();
  }
  return RunGuarded("loss", [&] {
    MakeLoss();
    AllocateActivationGradients();
  });
}

// A model has tensors, so the gradient by the scores is always needed.
void CpuBackend::MakeLoss() {
  const memory::desc output = layers_.back()->output().value.get_desc();
  const memory::desc plain = PlainFormat(output.dims());
  scores_.emplace(&device_, output, plain);
  score_gradients_.emplace(&device_, plain, output);
}

// The backward pass needs the gradient by a layer's output only until the gradient by
// its input is there, so two pieces of memory serve all layers in turn.
void CpuBackend::AllocateActivationGradients() {
  std::array<std::vector<memory>, 2> users;
  int turn = 0;
  memory previous;
  for (const std::unique_ptr<CpuLayer>& layer : layers_) {
    const memory& gradient = layer->output().gradient;
    if (!gradient || gradient == previous) continue;  // not needed, or in place
    users[turn].push_back(gradient);
    turn = 1 - turn;
    previous = gradient;
  }
  for (int i = 0; i < 2; ++i) {
    size_t bytes = 0;
    for (const memory& user : users[i]) bytes = std::max(bytes, user.get_desc().get_size());
    if (bytes == 0) continue;
    activation_gradients_[i] = device_.Allocate(Bytes(bytes));
    for (memory& user : users[i]) {
      user.set_data_handle(activation_gradients_[i].get_data_handle());
    }
  }
}

absl::Status CpuBackend::Check(const Batch& batch, absl::Span<const float> parameters) const {
  if (batch.size < 1 || batch.size > options_.batch_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.size, " images: the backend was made for 1 to ", options_.batch_size));
  }
  if (static_cast<int64_t>(batch.images.size()) != batch.size * model_.input().size() ||
      static_cast<int64_t>(batch.labels.size()) != batch.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.size, " images of ", model_.input().ToString(), " comes with ",
        batch.images.size(), " floats and ", batch.labels.size(), " labels"));
  }
  for (int64_t i = 0; i < batch.size; ++i) {
    if (batch.labels[i] >= 0 && batch.labels[i] < model_.classes()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the label of image ", i, " in the batch is ",
                                                   batch.labels[i], ", allowed are 0 to ",
                                                   model_.classes() - 1));
  }
  return CheckBuffer("parameter", parameters.size(), model_);
}

absl::Status CpuBackend::RunForward(const Batch& batch, const ForwardPass& pass,
                                    LayerHooks& hooks) {
  float* const images = Floats(images_);
  std::copy(batch.images.begin(), batch.images.end(), images);
  std::fill(images + batch.images.size(), images + options_.batch_size * model_.input().size(),
            0.0f);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = model_.layers()[i];
    absl::Status status;
    if (layer.tensor_count > 0) status = hooks.AwaitParameters(i);
    if (status.ok()) status = RunGuarded(layer.name, [&] { layers_[i]->Forward(pass); });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> CpuBackend::RunLoss(const Batch& batch, const ForwardPass& pass) {
  const Activation& output = layers_.back()->output();
  const size_t used = batch.size * model_.classes();
  BatchResult result;
  absl::Status status = RunGuarded("loss", [&] {
    const memory scores = scores_->Get(output.value);
    device_.stream().wait();
    absl::Span<float> gradients;
    if (pass.training) {
      gradients = {Floats(score_gradients_->Begin(output.gradient)),
                   static_cast<size_t>(options_.batch_size * model_.classes())};
      // The images that fill up the batch count for nothing.
      std::fill(gradients.begin() + used, gradients.end(), 0.0f);
      gradients = gradients.first(used);
    }
    result = SoftmaxCrossEntropy({Floats(scores), used}, batch.labels, model_.classes(), gradients);
    if (pass.training) score_gradients_->Finish(output.gradient);
  });
  if (!status.ok()) return status;
  return result;
}

absl::Status CpuBackend::RunBackward(absl::Span<const float> parameters,
                                     absl::Span<float> gradients, LayerHooks& hooks) {
  for (size_t i = layers_.size(); i-- > 0;) {
    if (!layers_[i]->output().gradient) break;  // nor has any layer before it parameters
    const Layer& layer = model_.layers()[i];
    absl::Status status = RunGuarded(layer.name, [&] {
      layers_[i]->Backward(parameters, gradients);
      device_.stream().wait();
    });
    if (status.ok() && layer.tensor_count > 0) status = hooks.GradientReady(i);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> CpuBackend::ForwardBackward(const Batch& batch,
                                                        absl::Span<const float> parameters,
                                                        int64_t iteration,
                                                        absl::Span<float> gradients,
                                                        LayerHooks& hooks) {
  absl::Status status = Check(batch, parameters);
  if (status.ok()) status = CheckBuffer("gradient", gradients.size(), model_);
  if (!status.ok()) return status;
  const ThreadCountScope threads(options_.threads);
  const ForwardPass pass = {.parameters = parameters, .training = true, .iteration = iteration};
  status = RunForward(batch, pass, hooks);
  if (!status.ok()) return status;
  absl::StatusOr<BatchResult> result = RunLoss(batch, pass);
  if (result.ok()) status = RunBackward(parameters, gradients, hooks);
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<BatchResult> CpuBackend::Evaluate(const Batch& batch,
                                                 absl::Span<const float> parameters) {
  if (absl::Status status = Check(batch, parameters); !status.ok()) return status;
  const ThreadCountScope threads(options_.threads);
  const ForwardPass pass = {.parameters = parameters};
  LayerHooks nothing;
  if (absl::Status status = RunForward(batch, pass, nothing); !status.ok()) return status;
  return RunLoss(batch, pass);
}

}  // namespace ps
