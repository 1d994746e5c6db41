#include "worker/compute/cpu/backend.h"

#include <algorithm>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "oneapi/dnnl/dnnl_debug.h"
#include "worker/compute/buffer_reuse.h"
#include "worker/compute/cpu/layers.h"
#include "worker/compute/cpu/residual.h"
#include "worker/compute/cpu/softmax_cross_entropy.h"
#include "worker/compute/cpu/thread_count.h"
#include "worker/compute/layer_graph.h"
#include "worker/compute/pass_input.h"

namespace evenshard {
namespace {

using dnnl::memory;

// Runs `step` and converts oneDNN's exceptions to a status that names `where`, a layer. No other
// code converts them.
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

std::unique_ptr<CpuLayer> MakeLayer(CpuDevice* device, const Model& model, const Layer& layer,
                                    const CpuBackend::Options& options,
                                    const std::vector<Activation>& inputs) {
  switch (layer.spec.kind_case()) {
    case LayerSpec::kConv:
      return MakeCpuConvolution(device, model, layer, inputs[0]);
    case LayerSpec::kLinear:
      return MakeCpuLinear(device, model, layer, inputs[0]);
    case LayerSpec::kMaxPool:
    case LayerSpec::kGlobalAvgPool:
      return MakeCpuPooling(device, layer, inputs[0]);
    case LayerSpec::kRelu:
      return MakeCpuRelu(device, inputs[0]);
    case LayerSpec::kDropout:
      return MakeCpuDropout(device, layer, options.seed, options.rank, inputs[0]);
    case LayerSpec::kBatchNorm:
      return MakeCpuBatchNorm(device, model, layer, inputs[0]);
    case LayerSpec::kResidual:
      return MakeCpuResidualEnd(device, inputs[0], inputs[1]);
    case LayerSpec::KIND_NOT_SET:  // refused by Model::Create
      break;
  }
  throw dnnl::error(dnnl_unimplemented, "a layer of no kind");
}

// Allocates memory for handles that are needed only for a part of a pass (HandlesOf). Each was made
// by CpuDevice::Unallocated or is empty. Handles that are never needed at the same time may share
// memory. Returns the allocated memory, which the caller must keep as long as the handles are used.
// Throws dnnl::error.
std::vector<memory> AllocateWithReuse(const CpuDevice& device,
                                      const std::vector<std::vector<memory>>& steps) {
  std::vector<BufferUse> uses;
  const auto bytes_of = [](const memory& handle) { return handle.get_desc().get_size(); };
  const std::vector<memory> handles = HandlesOf(steps, bytes_of, &uses);
  const ReusedBuffers buffers = AssignBuffers(uses);
  std::vector<memory> owned;
  for (const size_t bytes : buffers.bytes) owned.push_back(device.Allocate(Bytes(bytes)));
  for (size_t i = 0; i < handles.size(); ++i) {
    handles[i].set_data_handle(owned[buffers.buffer_of_use[i]].get_data_handle());
  }
  return owned;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const Model& model,
                                                               const Options& options) {
  if (options.batch_size < 1 || options.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size ", options.batch_size,
                                                   " and threads ", options.threads,
                                                   " must both be at least 1"));
  }
  if (absl::Status small = CheckBatchSize(model, options.batch_size); !small.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size ", small.message()));
  }
  const ThreadCountScope threads(options.threads);
  std::unique_ptr<CpuBackend> backend;
  RETURN_IF_ERROR(RunGuarded("images", [&] { backend.reset(new CpuBackend(model, options)); }));
  RETURN_IF_ERROR(backend->MakeLayers());
  return backend;
}

CpuBackend::CpuBackend(const Model& model, const Options& options)
    : model_(model),
      options_(options),
      images_(device_.Allocate(PlainFormat({options.batch_size, model.input().channels,
                                            model.input().height, model.input().width}))) {}

absl::Status CpuBackend::MakeLayers() {
  const std::vector<GraphStep> steps = StepsOf(model_);
  const auto activation = [&](const GraphEdge& edge) -> Activation {
    if (edge.step == kImages) return {images_, memory()};
    const CpuLayer& operation = *nodes_[edge.step].operation;
    if (!steps[edge.step].is_fork()) return operation.output();
    return static_cast<const CpuFork&>(operation).branch(edge.branch);
  };
  for (const GraphStep& step : steps) {
    Node& node = nodes_.emplace_back(Node{step.layer, step.is_fork(), nullptr});
    RETURN_IF_ERROR(RunNode(node, [&] {
      std::vector<Activation> inputs;
      for (const GraphEdge& edge : step.inputs) inputs.push_back(activation(edge));
      if (step.is_fork()) {
        node.operation = std::make_unique<CpuFork>(&device_, inputs[0], step.overwritten);
      } else {
        node.operation = MakeLayer(&device_, model_, model_.layers()[step.layer], options_, inputs);
      }
    }));
  }
  return RunGuarded("loss", [&] {
    MakeLoss();
    std::vector<std::vector<memory>> backward;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      backward.push_back(node->operation->gradients());
    }
    gradient_memory_ = AllocateWithReuse(device_, backward);
  });
}

// Every model has tensors, so the gradient with respect to the scores is always needed.
void CpuBackend::MakeLoss() {
  const memory::desc output = nodes_.back().operation->output().value.get_desc();
  const memory::desc plain = PlainFormat(output.dims());
  scores_.emplace(&device_, output, plain);
  score_gradients_.emplace(&device_, plain, output);
}

absl::Status CpuBackend::RunNode(const Node& node, absl::FunctionRef<void()> step) const {
  return RunGuarded(node.layer == kImages ? "images" : model_.layers()[node.layer].name, step);
}

bool CpuBackend::HasTensors(const Node& node) const {
  return !node.fork && model_.layers()[node.layer].tensor_count > 0;
}

absl::Status CpuBackend::RunForward(const Batch& batch, const ForwardPass& pass,
                                    LayerHooks& hooks) {
  float* const images = Floats(images_);
  std::copy(batch.images.begin(), batch.images.end(), images);
  std::fill(images + batch.images.size(), images + options_.batch_size * model_.input().size(),
            0.0f);
  for (const Node& node : nodes_) {
    if (HasTensors(node)) {
      RETURN_IF_ERROR(hooks.AwaitParameters(node.layer));
    }
    RETURN_IF_ERROR(RunNode(node, [&] { node.operation->Forward(pass); }));
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> CpuBackend::RunLoss(const Batch& batch, const ForwardPass& pass) {
  const Activation& output = nodes_.back().operation->output();
  const size_t used = batch.size * model_.classes();
  BatchResult result;
  RETURN_IF_ERROR(RunGuarded("loss", [&] {
    const memory scores = scores_->Get(output.value);
    device_.stream().wait();
    absl::Span<float> gradients;
    if (pass.training) {
      gradients = {Floats(score_gradients_->Begin(output.gradient)),
                   static_cast<size_t>(options_.batch_size * model_.classes())};
      // The images that fill up the batch must not contribute to the gradient.
      std::fill(gradients.begin() + used, gradients.end(), 0.0f);
      gradients = gradients.first(used);
    }
    result = SoftmaxCrossEntropy({Floats(scores), used}, batch.labels, model_.classes(), gradients);
    if (pass.training) score_gradients_->Finish(output.gradient);
  }));
  return result;
}

absl::Status CpuBackend::RunBackward(absl::Span<const float> parameters,
                                     absl::Span<float> gradients, LayerHooks& hooks) {
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (!node->operation->output().gradient) continue;  // no layer up to here has tensors
    RETURN_IF_ERROR(RunNode(*node, [&] {
      node->operation->Backward(parameters, gradients);
      device_.stream().wait();
    }));
    if (HasTensors(*node)) {
      RETURN_IF_ERROR(hooks.GradientReady(node->layer));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> CpuBackend::ForwardBackward(const Batch& batch,
                                                        absl::Span<const float> parameters,
                                                        int64_t iteration,
                                                        absl::Span<float> gradients,
                                                        LayerHooks& hooks) {
  RETURN_IF_ERROR(
      CheckTraining(model_, options_.batch_size, batch, parameters.size(), gradients.size()));
  const ThreadCountScope threads(options_.threads);
  const ForwardPass pass = {.parameters = parameters, .training = true, .iteration = iteration};
  RETURN_IF_ERROR(RunForward(batch, pass, hooks));
  ASSIGN_OR_RETURN(BatchResult result, RunLoss(batch, pass));
  RETURN_IF_ERROR(RunBackward(parameters, gradients, hooks));
  return result;
}

absl::StatusOr<BatchResult> CpuBackend::Evaluate(const Batch& batch,
                                                 absl::Span<const float> parameters) {
  RETURN_IF_ERROR(CheckEvaluation(model_, options_.batch_size, batch, parameters.size()));
  const ThreadCountScope threads(options_.threads);
  const ForwardPass pass = {.parameters = parameters};
  LayerHooks nothing;
  RETURN_IF_ERROR(RunForward(batch, pass, nothing));
  return RunLoss(batch, pass);
}

}  // namespace evenshard
