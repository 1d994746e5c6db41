#include "worker/compute/cuda/backend.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/layers.h"
#include "worker/compute/cuda/residual.h"
#include "worker/compute/pass_input.h"

namespace evenshard {
namespace {

absl::Status StatusOf(const std::string& where, const CudaError& error) {
  const std::string text = absl::StrCat(where, ": ", error.what());
  switch (error.kind()) {
    case CudaError::Kind::kSetup:
      return absl::FailedPreconditionError(text);
    case CudaError::Kind::kMemory:
      return absl::ResourceExhaustedError(text);
    case CudaError::Kind::kLost:
      return absl::UnavailableError(text);
    case CudaError::Kind::kOther:
      break;
  }
  return absl::InternalError(text);
}

std::unique_ptr<CudaLayer> MakeLayer(const CudaContext& context, const Layer& layer,
                                     const CudaBackend::Options& options,
                                     const std::vector<CudaActivation>& inputs) {
  switch (layer.spec.kind_case()) {
    case LayerSpec::kConv:
      return MakeCudaConvolution(context, layer, inputs[0]);
    case LayerSpec::kLinear:
      return MakeCudaLinear(context, layer, inputs[0]);
    case LayerSpec::kMaxPool:
    case LayerSpec::kGlobalAvgPool:
      return MakeCudaPooling(context, layer, inputs[0]);
    case LayerSpec::kRelu:
      return MakeCudaRelu(context, inputs[0]);
    case LayerSpec::kDropout:
      return MakeCudaDropout(context, layer, options.seed, options.rank, inputs[0]);
    case LayerSpec::kBatchNorm:
      return MakeCudaBatchNorm(context, layer, inputs[0]);
    case LayerSpec::kResidual:
      return MakeCudaResidualEnd(context, inputs[0], inputs[1]);
    case LayerSpec::KIND_NOT_SET:  // refused by Model::Create
      break;
  }
  throw CudaError(CudaError::Kind::kOther, "a layer of no kind");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(const Model& model,
                                                                 const Options& options) {
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size ", options.batch_size, " must be at least 1"));
  }
  if (absl::Status small = CheckBatchSize(model, options.batch_size); !small.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size ", small.message()));
  }
  std::unique_ptr<CudaBackend> backend;
  try {
    backend.reset(new CudaBackend(model, options));
  } catch (const CudaError& error) {
    return StatusOf("the CUDA backend", error);
  }
  RETURN_IF_ERROR(backend->Run([&] {
    backend->MakeSteps();
    backend->Prepare();
    return absl::OkStatus();
  }));
  return backend;
}

CudaBackend::CudaBackend(const Model& model, const Options& options)
    : model_(model),
      options_(options),
      device_(options.device),
      timeline_(options.trace),
      transfer_(&device_, &model_, &memory_, &timeline_),
      context_{.device = &device_,
               .memory = &memory_,
               .model = &model_,
               .images = options.batch_size,
               .scratch = memory_.Declare(0)},
      images_(context_.DeclareValues(model.input())),
      losses_(memory_.Declare(options.batch_size * sizeof(kernels::ImageLoss))),
      host_losses_(PinnedMemory::Allocate(losses_->bytes)) {
  for (DeviceBatch& batch : batches_) {
    batch.images = memory_.Declare(options.batch_size * model.input().size() * sizeof(float));
    batch.labels = memory_.Declare(options.batch_size * sizeof(int32_t));
    batch.host_labels = PinnedMemory::Allocate(batch.labels->bytes);
  }
  context_.ReserveScratch(kernels::SoftmaxScratch(options.batch_size) * sizeof(float));
}

CudaBackend::~CudaBackend() {
  // No work may be left in memory that is about to be freed. A lost device has none left.
  try {
    device_.Use();
    device_.Synchronize();
  } catch (const CudaError&) {
  }
}

void CudaBackend::MakeSteps() {
  // For each step of the graph, the index of its step in steps_, which also has flatten steps.
  std::vector<int> own;
  const auto activation_at = [&](const GraphEdge& edge) -> CudaActivation {
    if (edge.step == kImages) return {model_.input(), images_, nullptr};
    const Step& step = steps_[own[edge.step]];
    if (!step.graph.is_fork()) return step.operation->output();
    return static_cast<const CudaFork&>(*step.operation).branch(edge.branch);
  };

  for (const GraphStep& graph : StepsOf(model_)) {
    where_ = graph.layer == kImages ? "images" : model_.layers()[graph.layer].name;
    const bool is_relu = !graph.is_fork() && model_.layers()[graph.layer].spec.has_relu();
    if (is_relu && graph.inputs[0].step != kImages) {
      const int before = own[graph.inputs[0].step];
      if (!steps_[before].graph.is_fork() && steps_[before].operation->FuseRelu()) {
        own.push_back(before);
        continue;
      }
    }
    std::vector<CudaActivation> inputs;
    for (const GraphEdge& edge : graph.inputs) inputs.push_back(activation_at(edge));
    std::unique_ptr<CudaLayer> operation;
    if (graph.is_fork()) {
      operation = std::make_unique<CudaFork>(context_, inputs[0], graph.overwritten);
    } else {
      const Layer& layer = model_.layers()[graph.layer];
      if (layer.spec.has_linear() && (layer.input.height > 1 || layer.input.width > 1)) {
        steps_.push_back({{}, "flatten", MakeCudaFlatten(context_, inputs[0])});
        inputs[0] = steps_.back().operation->output();
      }
      operation = MakeLayer(context_, layer, options_, inputs);
    }
    own.push_back(static_cast<int>(steps_.size()));
    steps_.push_back({graph, where_, std::move(operation)});
  }
}

void CudaBackend::Prepare() {
  where_ = device_.name();
  std::vector<std::vector<CudaArrayPtr>> backward;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    backward.push_back(step->operation->gradients());
  }
  memory_.Allocate(backward, absl::StrCat("the model ", model_.name(), " with training.batch_size ",
                                          options_.batch_size));
  const absl::Time start = absl::Now();
  ConvolutionPlanner planner(&device_);
  for (Step& step : steps_) {
    where_ = step.name;
    step.operation->Prepare(&planner);
  }
  transfer_.Prepare();
  timeline_.StartPass(device_.compute());
  device_.Synchronize();
  spdlog::info("{} ({}): {} MiB for the model and its batch, convolutions chosen in {:.1f} s",
               device_.name(), device_.pci_bus_id(), memory_.bytes() >> 20,
               absl::ToDoubleSeconds(absl::Now() - start));
}

bool CudaBackend::HasTensors(const Step& step) const {
  return step.graph.layer != kImages && !step.graph.is_fork() &&
         model_.layers()[step.graph.layer].tensor_count > 0;
}

std::optional<DeviceUsage> CudaBackend::Usage() const {
  return DeviceUsage{.name = device_.name(),
                     .pci_bus_id = device_.pci_bus_id(),
                     .bytes = static_cast<int64_t>(memory_.bytes() + device_.workspace_bytes())};
}

absl::Status CudaBackend::UseBuffers(const HostBuffers& buffers) {
  return Run([&] {
    where_ = "the worker's buffers";
    transfer_.UseBuffers(buffers.parameters, buffers.gradients);
    image_locks_.clear();
    for (const absl::Span<const float> images : buffers.images) {
      image_locks_.push_back(
          PinnedMemory::Lock(const_cast<float*>(images.data()), images.size() * sizeof(float)));
    }
    return absl::OkStatus();
  });
}

void CudaBackend::ParametersWritten(int64_t begin, int64_t count) {
  transfer_.Written(begin, count);
}

absl::Status CudaBackend::Run(absl::FunctionRef<absl::Status()> pass) {
  absl::Status status;
  try {
    device_.Use();
    status = pass();
  } catch (const CudaError& error) {
    status = StatusOf(where_, error);
  }
  if (status.ok()) return status;
  try {
    device_.Synchronize();
  } catch (const CudaError&) {  // only the first error is reported
  }
  return status;
}

absl::Status CudaBackend::CheckBuffers(absl::Span<const float> parameters) const {
  if (transfer_.Uses(parameters)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the CUDA backend reads parameters only from the buffer that was given to UseBuffers");
}

void CudaBackend::Prefetch(const Batch& next) {
  // The place that the current pass does not use.
  const size_t place = 1 - prefetched_place_;
  prefetch_failure_ = Run([&] {
    where_ = "images";
    Upload(next, place);
    return absl::OkStatus();
  });
  prefetched_ = next.images;
  prefetched_place_ = place;
}

void CudaBackend::Upload(const Batch& batch, size_t place) {
  DeviceBatch& to = batches_[place];
  const cudaStream_t stream = device_.upload();
  const size_t bytes = batch.images.size() * sizeof(float);
  timeline_.Begin(Trace::Row::kToDevice, "images to the device", Trace::kWhole, stream);
  Check(
      cudaMemcpyAsync(to.images->data, batch.images.data(), bytes, cudaMemcpyHostToDevice, stream),
      "copying the images to the device");
  Check(cudaMemsetAsync(static_cast<char*>(to.images->data) + bytes, 0, to.images->bytes - bytes,
                        stream),
        "filling up the batch");
  std::memcpy(to.host_labels.data(), batch.labels.data(), batch.size * sizeof(int32_t));
  Check(cudaMemcpyAsync(to.labels->data, to.host_labels.data(), batch.size * sizeof(int32_t),
                        cudaMemcpyHostToDevice, stream),
        "copying the labels to the device");
  timeline_.End(Trace::Row::kToDevice, Trace::kWhole, stream);
  to.arrived.Record(stream);
}

size_t CudaBackend::QueueImages(const Batch& batch) {
  where_ = "images";
  // The batch of an evaluation must not overwrite the batch that was prefetched.
  const bool is_here =
      batch.images.data() == prefetched_.data() && batch.images.size() == prefetched_.size();
  const size_t place = is_here ? prefetched_place_ : 1 - prefetched_place_;
  if (is_here) {
    prefetched_ = {};
  } else {
    Upload(batch, place);
  }
  batches_[place].arrived.Await(device_.compute());
  const Shape3& input = model_.input();
  kernels::ToChannelsLast(
      device_.compute(), {options_.batch_size, input.channels, input.height * input.width},
      ElementType::kFloat32, batches_[place].images->data, device_.type(), images_->data);
  return place;
}

absl::Status CudaBackend::QueueForward(const CudaPass& pass, LayerHooks& hooks) {
  for (const Step& step : steps_) {
    where_ = step.name;
    if (HasTensors(step)) {
      RETURN_IF_ERROR(hooks.AwaitParameters(step.graph.layer));
      transfer_.AwaitOnDevice(step.graph.layer);
    }
    timeline_.Begin(Trace::Row::kCompute, "forward", step.graph.layer, device_.compute());
    step.operation->Forward(pass);
    timeline_.End(Trace::Row::kCompute, step.graph.layer, device_.compute());
  }
  return absl::OkStatus();
}

void CudaBackend::QueueLoss(const Batch& batch, size_t place, bool training) {
  where_ = "loss";
  const CudaActivation& scores = steps_.back().operation->output();
  kernels::SoftmaxCrossEntropy(
      device_.compute(), device_.type(), options_.batch_size, batch.size, model_.classes(),
      scores.value->data, static_cast<const int32_t*>(batches_[place].labels->data),
      static_cast<kernels::ImageLoss*>(losses_->data), training ? scores.gradient->data : nullptr,
      context_.scratch->floats());
  losses_computed_.Record(device_.compute());
  losses_computed_.Await(device_.download());
  Check(cudaMemcpyAsync(host_losses_.data(), losses_->data, batch.size * sizeof(kernels::ImageLoss),
                        cudaMemcpyDeviceToHost, device_.download()),
        "copying the losses from the device");
  losses_on_host_.Record(device_.download());
}

void CudaBackend::QueueBackward(const CudaPass& pass) {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->operation->output().gradient == nullptr) continue;  // no layer up to here has tensors
    where_ = step->name;
    timeline_.Begin(Trace::Row::kCompute, "backward", step->graph.layer, device_.compute());
    step->operation->Backward(pass);
    timeline_.End(Trace::Row::kCompute, step->graph.layer, device_.compute());
    if (HasTensors(*step)) transfer_.Fetch(step->graph.layer);
  }
}

absl::Status CudaBackend::TellGradients(LayerHooks& hooks) {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!HasTensors(*step)) continue;
    where_ = step->name;
    transfer_.AwaitOnHost(step->graph.layer);
    RETURN_IF_ERROR(hooks.GradientReady(step->graph.layer));
  }
  return absl::OkStatus();
}

BatchResult CudaBackend::Collect(const Batch& batch) {
  where_ = "loss";
  losses_on_host_.Await();
  const kernels::ImageLoss* const losses =
      static_cast<const kernels::ImageLoss*>(host_losses_.data());
  BatchResult result;
  for (int64_t i = 0; i < batch.size; ++i) {
    result.loss += losses[i].loss;
    result.correct += losses[i].correct;
  }
  result.loss /= batch.size;
  return result;
}

absl::StatusOr<BatchResult> CudaBackend::ForwardBackward(const Batch& batch,
                                                         absl::Span<const float> parameters,
                                                         int64_t iteration,
                                                         absl::Span<float> gradients,
                                                         LayerHooks& hooks) {
  RETURN_IF_ERROR(CheckTraining(model_, options_.batch_size, batch, parameters.size(),
                                transfer_.fetches() ? gradients.size() : model_.buffer_size()));
  RETURN_IF_ERROR(CheckBuffers(parameters));
  const CudaPass pass = {.training = true,
                         .iteration = iteration,
                         .parameters = transfer_.parameters(),
                         .gradients = transfer_.gradients()};
  BatchResult result;
  RETURN_IF_ERROR(Run([&]() -> absl::Status {
    timeline_.StartPass(device_.compute());
    RETURN_IF_ERROR(prefetch_failure_);
    const size_t place = QueueImages(batch);
    RETURN_IF_ERROR(QueueForward(pass, hooks));
    QueueLoss(batch, place, /*training=*/true);
    QueueBackward(pass);
    where_ = "images";
    batches_[place].arrived.Await();  // so that the batch's memory may be reused
    prefetched_place_ = place;
    hooks.PassQueued();
    RETURN_IF_ERROR(TellGradients(hooks));
    result = Collect(batch);
    timeline_.FinishPass(iteration);
    return absl::OkStatus();
  }));
  return result;
}

absl::StatusOr<BatchResult> CudaBackend::Evaluate(const Batch& batch,
                                                  absl::Span<const float> parameters) {
  RETURN_IF_ERROR(CheckEvaluation(model_, options_.batch_size, batch, parameters.size()));
  RETURN_IF_ERROR(CheckBuffers(parameters));
  const CudaPass pass = {.parameters = transfer_.parameters()};
  LayerHooks nothing;
  BatchResult result;
  RETURN_IF_ERROR(Run([&]() -> absl::Status {
    const size_t place = QueueImages(batch);
    RETURN_IF_ERROR(QueueForward(pass, nothing));
    QueueLoss(batch, place, /*training=*/false);
    result = Collect(batch);
    return absl::OkStatus();
  }));
  return result;
}

}  // namespace evenshard
