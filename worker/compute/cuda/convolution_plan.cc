// This file uses the terms of NVIDIA's "cuDNN Backend API": operation graph, engine heuristics,
// engine configuration, execution plan, and variant pack (the arguments of one execution).

#include "worker/compute/cuda/convolution_plan.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/compute/cuda/error.h"

namespace evenshard {
namespace {

constexpr int kTimedRuns = 3;

// The ids of the tensors in a graph and its arguments.
constexpr int64_t kInputId = 1;
constexpr int64_t kWeightsId = 2;
constexpr int64_t kOutputId = 3;
constexpr int64_t kBiasId = 4;
// Virtual tensors: the sums of the convolution, and the sums with the bias added.
constexpr int64_t kSumsId = 5;
constexpr int64_t kBiasedId = 6;

template <typename T>
void Set(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, const std::vector<T>& values) {
  Check(cudnnBackendSetAttribute(descriptor.get(), name, type, values.size(), values.data()),
        "describing a convolution");
}

void Set(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
         const std::vector<CudnnDescriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (const CudnnDescriptor& value : values) {
    pointers.push_back(value.get());
    descriptor.Keep(value);
  }
  Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, pointers);
}

template <typename T>
void Set(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, const T& value) {
  Check(cudnnBackendSetAttribute(descriptor.get(), name, type, 1, &value),
        "describing a convolution");
}

void Finalize(const CudnnDescriptor& descriptor) {
  Check(cudnnBackendFinalize(descriptor.get()), "describing a convolution");
}

cudnnDataType_t DataType(ElementType type) {
  return type == ElementType::kFloat32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

// Describes a tensor [images, channels, height, width] in cuDNN's order of the dimensions, which is
// channels-last in memory. A virtual tensor connects two operations and is not in memory.
CudnnDescriptor Tensor(int64_t id, ElementType type, int64_t images, const Shape3& shape,
                       bool is_virtual = false) {
  const CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  Set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, DataType(type));
  Set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  Set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
      std::vector<int64_t>{images, shape.channels, shape.height, shape.width});
  Set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
      std::vector<int64_t>{shape.size(), 1, shape.width * shape.channels, shape.channels});
  Set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  Finalize(tensor);
  return tensor;
}

CudnnDescriptor Geometry(const ConvolutionProblem& problem) {
  const CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::vector<int64_t> strides(2, problem.stride);
  const std::vector<int64_t> padding(2, problem.padding);
  const std::vector<int64_t> dilations(2, 1);
  Set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  Set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
      CUDNN_CROSS_CORRELATION);
  Set(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2});
  Set(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilations);
  Set(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, strides);
  Set(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, padding);
  Set(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, padding);
  Finalize(convolution);
  return convolution;
}

// The names that the three operations have for the same attributes.
struct OperationNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, input, weights, output, alpha, beta;
};

OperationNames NamesOf(ConvolutionProblem::Pass pass) {
  switch (pass) {
    case ConvolutionProblem::kForward:
    case ConvolutionProblem::kForwardBiasRelu:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvolutionProblem::kInputGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionProblem::kWeightGradient:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

CudnnDescriptor Convolve(const ConvolutionProblem& problem, const CudnnDescriptor& output) {
  const OperationNames names = NamesOf(problem.pass);
  const Shape3 weights = {problem.input.channels, problem.kernel, problem.kernel};
  const CudnnDescriptor operation(names.operation);
  Set(operation, names.convolution, {Geometry(problem)});
  Set(operation, names.input, {Tensor(kInputId, problem.type, problem.images, problem.input)});
  Set(operation, names.weights,
      {Tensor(kWeightsId, problem.type, problem.output.channels, weights)});
  Set(operation, names.output, {output});
  Set(operation, names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  Set(operation, names.beta, CUDNN_TYPE_FLOAT, 0.0f);
  Finalize(operation);
  return operation;
}

// Describes output = mode(input) or, unless `other` is empty, mode(input, other), element by
// element.
CudnnDescriptor Pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& input,
                          const CudnnDescriptor& other, const CudnnDescriptor& output) {
  const CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  Set(function, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  Set(function, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  Set(function, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
      CUDNN_PROPAGATE_NAN);
  Finalize(function);
  const CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {function});
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {input});
  if (other) Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {other});
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {output});
  Finalize(operation);
  return operation;
}

std::vector<CudnnDescriptor> OperationsOf(const ConvolutionProblem& problem) {
  const CudnnDescriptor output = Tensor(kOutputId, problem.type, problem.images, problem.output);
  if (problem.pass != ConvolutionProblem::kForwardBiasRelu) return {Convolve(problem, output)};
  const auto between = [&](int64_t id) {
    return Tensor(id, ElementType::kFloat32, problem.images, problem.output, /*is_virtual=*/true);
  };
  const CudnnDescriptor sums = between(kSumsId);
  const CudnnDescriptor biased = between(kBiasedId);
  const CudnnDescriptor bias =
      Tensor(kBiasId, problem.type, /*images=*/1, {problem.output.channels, 1, 1});
  return {Convolve(problem, sums), Pointwise(CUDNN_POINTWISE_ADD, sums, bias, biased),
          Pointwise(CUDNN_POINTWISE_RELU_FWD, biased, {}, output)};
}

CudnnDescriptor Graph(cudnnHandle_t handle, const ConvolutionProblem& problem) {
  const CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, OperationsOf(problem));
  Finalize(graph);
  return graph;
}

// Returns whether the engine of a configuration satisfies the device's options.
bool IsAllowed(const CudnnDescriptor& configuration, const CudaDevice& device) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t pointer = engine.get();
  int64_t count = 0;
  Check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &pointer),
        "asking for an engine");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes;
  Check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, notes.size(), &count, notes.data()),
        "asking what an engine computes");
  const auto end = notes.begin() + std::min<int64_t>(count, notes.size());
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), end, note) != end;
  };
  if (device.deterministic() && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return false;  // inputs rounded to 16 bits
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;  // sums in 16 bits
  if (device.precision() != Compute::Cuda::FLOAT32) return true;
  return !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) && !has(CUDNN_NUMERICAL_NOTE_FFT) &&
         !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4) &&
         !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) &&
         !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
}

// Returns the engine configurations that cuDNN recommends for the graph, best first.
std::vector<CudnnDescriptor> Recommended(const CudnnDescriptor& graph,
                                         cudnnBackendHeurMode_t mode) {
  const CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  Set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
  Set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (cudnnBackendFinalize(heuristics.get()) != CUDNN_STATUS_SUCCESS) return {};  // there are none
  int64_t count = 0;
  Check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "asking for engines");
  std::vector<CudnnDescriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (int64_t i = 0; i < count; ++i) {
    configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    configurations.back().Keep(graph);
    pointers.push_back(configurations.back().get());
  }
  Check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, pointers.data()),
        "asking for engines");
  configurations.resize(count);
  return configurations;
}

// Returns an empty descriptor if the engine does not support the graph, or needs more than the
// workspace. For some of the engines that cuDNN recommends, only this call finds that out.
CudnnDescriptor MakePlan(const CudaDevice& device, const CudnnDescriptor& configuration) {
  const CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  Set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, device.cudnn());
  Set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {configuration});
  if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) return {};
  int64_t workspace = 0;
  int64_t count = 0;
  Check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &workspace),
        "asking for an engine's workspace");
  return workspace <= static_cast<int64_t>(device.workspace_bytes()) ? plan : CudnnDescriptor();
}

CudnnDescriptor PackArguments(const CudaDevice& device, const ConvolutionArguments& arguments) {
  std::vector<int64_t> ids = {kInputId, kWeightsId, kOutputId};
  std::vector<void*> pointers = {arguments.input, arguments.weights, arguments.output};
  if (arguments.bias != nullptr) {
    ids.push_back(kBiasId);
    pointers.push_back(arguments.bias);
  }
  const CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, device.workspace());
  Finalize(pack);
  return pack;
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type)
    : held_(std::make_shared<Held>()) {
  Check(cudnnBackendCreateDescriptor(type, &held_->descriptor), "making a cuDNN descriptor");
}

std::string ConvolutionProblem::ToString() const {
  constexpr const char* kNames[] = {"forward pass", "forward pass with bias and ReLU",
                                    "input gradient", "weight gradient"};
  return absl::StrCat(kNames[pass], " of a convolution, ", images, " x ", input.ToString(), " to ",
                      output.ToString(), ", kernel ", kernel, ", stride ", stride, ", padding ",
                      padding, type == ElementType::kBfloat16 ? ", bfloat16" : "");
}

Convolution::Convolution(CudaDevice* device, const Plan& plan,
                         const ConvolutionArguments& arguments)
    : device_(device),
      plan_(plan.descriptor),
      arguments_(PackArguments(*device, arguments)),
      seconds_(plan.seconds) {}

void Convolution::Run() const {
  Check(cudnnBackendExecute(device_->cudnn(), plan_.get(), arguments_.get()),
        "starting a convolution");
}

Convolution ConvolutionPlanner::Plan(const ConvolutionProblem& problem,
                                     const ConvolutionArguments& arguments) {
  std::optional<Convolution> planned = TryPlan(problem, arguments);
  if (planned.has_value()) return *std::move(planned);
  throw CudaError(
      CudaError::Kind::kOther,
      absl::StrCat("cuDNN has no engine for the ", problem.ToString(), " with at most ",
                   device_->workspace_bytes(), " bytes to work in (compute.cuda.workspace_bytes)"));
}

std::optional<Convolution> ConvolutionPlanner::TryPlan(const ConvolutionProblem& problem,
                                                       const ConvolutionArguments& arguments) {
  const auto [known, is_new] = plans_.try_emplace(problem);
  Convolution::Plan& plan = known->second;
  if (is_new) plan = Fastest(problem, arguments);
  if (!plan.descriptor) return std::nullopt;
  return Convolution(device_, plan, arguments);
}

double ConvolutionPlanner::Time(const std::function<void()>& queue) const {
  const int runs = device_->timed_engines() == 1 ? 0 : kTimedRuns;
  CudaEvent begin(/*timing=*/true);
  CudaEvent end(/*timing=*/true);
  double fastest = runs == 0 ? 0 : std::numeric_limits<double>::infinity();
  for (int run = 0; run <= runs; ++run) {
    begin.Record(device_->compute());
    queue();
    end.Record(device_->compute());
    end.Await();
    if (run > 0) fastest = std::min(fastest, CudaEvent::SecondsBetween(begin, end));
  }
  return fastest;
}

Convolution::Plan ConvolutionPlanner::Fastest(const ConvolutionProblem& problem,
                                              const ConvolutionArguments& arguments) const {
  const CudnnDescriptor graph = Graph(device_->cudnn(), problem);
  const CudnnDescriptor pack = PackArguments(*device_, arguments);
  Convolution::Plan fastest;
  // The fallback engines support problems that no other engine does.
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    int timed = 0;
    for (const CudnnDescriptor& configuration : Recommended(graph, mode)) {
      if (timed == device_->timed_engines()) break;
      if (!IsAllowed(configuration, *device_)) continue;
      const CudnnDescriptor plan = MakePlan(*device_, configuration);
      if (!plan) continue;
      bool runs = true;
      const double seconds = Time([&] {
        if (!runs) return;
        const cudnnStatus_t status = cudnnBackendExecute(device_->cudnn(), plan.get(), pack.get());
        if (IsOutOfMemory(status)) Check(status, "trying a convolution");
        runs = status == CUDNN_STATUS_SUCCESS;
      });
      if (!runs) continue;
      ++timed;
      if (fastest.descriptor && seconds >= fastest.seconds) continue;
      fastest = {plan, seconds};
    }
    if (fastest.descriptor) break;
  }
  return fastest;
}

}  // namespace evenshard
