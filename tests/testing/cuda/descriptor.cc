#include "tests/testing/cuda/descriptor.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/testing/cuda/state.h"

namespace evenshard::cuda_stand_in {
namespace {

constexpr int64_t kWorkspaceBytes = 1 << 20;  // of engine 1

#define ATTRIBUTE(owner, name) CUDNN_BACKEND_##owner##_DESCRIPTOR, CUDNN_ATTR_##name, #name
constexpr Rule kRules[] = {
    {ATTRIBUTE(TENSOR, TENSOR_DATA_TYPE), CUDNN_TYPE_DATA_TYPE, 1, 1},
    {ATTRIBUTE(TENSOR, TENSOR_DIMENSIONS), CUDNN_TYPE_INT64, 4, 4},
    {ATTRIBUTE(TENSOR, TENSOR_STRIDES), CUDNN_TYPE_INT64, 4, 4},
    {ATTRIBUTE(TENSOR, TENSOR_UNIQUE_ID), CUDNN_TYPE_INT64, 1, 1},
    {ATTRIBUTE(TENSOR, TENSOR_BYTE_ALIGNMENT), CUDNN_TYPE_INT64, 1, 1},
    {ATTRIBUTE(TENSOR, TENSOR_IS_VIRTUAL), CUDNN_TYPE_BOOLEAN, 1, 1, Rule::kOptional},

    {ATTRIBUTE(CONVOLUTION, CONVOLUTION_COMP_TYPE), CUDNN_TYPE_DATA_TYPE, 1, 1},
    {ATTRIBUTE(CONVOLUTION, CONVOLUTION_CONV_MODE), CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {ATTRIBUTE(CONVOLUTION, CONVOLUTION_DILATIONS), CUDNN_TYPE_INT64, 2, 2},
    {ATTRIBUTE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES), CUDNN_TYPE_INT64, 2, 2},
    {ATTRIBUTE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS), CUDNN_TYPE_INT64, 2, 2},
    {ATTRIBUTE(CONVOLUTION, CONVOLUTION_POST_PADDINGS), CUDNN_TYPE_INT64, 2, 2},
    {ATTRIBUTE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS), CUDNN_TYPE_INT64, 1, 1},

#define OPERATION(owner, prefix, x, w, y)                                          \
  {ATTRIBUTE(owner, prefix##_ALPHA), CUDNN_TYPE_FLOAT, 1, 1},                      \
      {ATTRIBUTE(owner, prefix##_BETA), CUDNN_TYPE_FLOAT, 1, 1},                   \
      {ATTRIBUTE(owner, prefix##_CONV_DESC), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}, \
      {ATTRIBUTE(owner, prefix##_##x), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},       \
      {ATTRIBUTE(owner, prefix##_##w), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}, {     \
    ATTRIBUTE(owner, prefix##_##y), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1            \
  }
    OPERATION(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD, X, W, Y),
    OPERATION(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA, DX, W, DY),
    OPERATION(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY),

    {ATTRIBUTE(POINTWISE, POINTWISE_MODE), CUDNN_TYPE_POINTWISE_MODE, 1, 1},
    {ATTRIBUTE(POINTWISE, POINTWISE_MATH_PREC), CUDNN_TYPE_DATA_TYPE, 1, 1},
    {ATTRIBUTE(POINTWISE, POINTWISE_NAN_PROPAGATION), CUDNN_TYPE_NAN_PROPOGATION, 1, 1,
     Rule::kOptional},

    {ATTRIBUTE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR),
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {ATTRIBUTE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     1},
    {ATTRIBUTE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1,
     Rule::kOptional},
    {ATTRIBUTE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     1},

    {ATTRIBUTE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE), CUDNN_TYPE_HANDLE, 1, 1},
    {ATTRIBUTE(OPERATIONGRAPH, OPERATIONGRAPH_OPS), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 3},

    {ATTRIBUTE(ENGINEHEUR, ENGINEHEUR_MODE), CUDNN_TYPE_HEUR_MODE, 1, 1},
    {ATTRIBUTE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {ATTRIBUTE(ENGINEHEUR, ENGINEHEUR_RESULTS), CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 2,
     Rule::kComputed},

    {ATTRIBUTE(ENGINE, ENGINE_OPERATION_GRAPH), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {ATTRIBUTE(ENGINE, ENGINE_GLOBAL_INDEX), CUDNN_TYPE_INT64, 1, 1},
    {ATTRIBUTE(ENGINE, ENGINE_NUMERICAL_NOTE), CUDNN_TYPE_NUMERICAL_NOTE, 0, 1, Rule::kComputed},

    {ATTRIBUTE(ENGINECFG, ENGINECFG_ENGINE), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},

    {ATTRIBUTE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE), CUDNN_TYPE_HANDLE, 1, 1},
    {ATTRIBUTE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {ATTRIBUTE(EXECUTION_PLAN, EXECUTION_PLAN_WORKSPACE_SIZE), CUDNN_TYPE_INT64, 1, 1,
     Rule::kComputed},

    {ATTRIBUTE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS), CUDNN_TYPE_INT64, 1, 64},
    {ATTRIBUTE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS), CUDNN_TYPE_VOID_PTR, 1, 64},
    {ATTRIBUTE(VARIANT_PACK, VARIANT_PACK_WORKSPACE), CUDNN_TYPE_VOID_PTR, 1, 1, Rule::kOptional},
};

Tensor ToTensor(const Descriptor& descriptor) {
  Tensor tensor;
  tensor.id = descriptor.Value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  tensor.bfloat16 =
      descriptor.Value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16;
  tensor.alignment = descriptor.Value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  const auto is_virtual = descriptor.Values<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);  // a bool
  tensor.is_virtual = !is_virtual.empty() && is_virtual[0] != 0;
  std::ranges::copy(descriptor.Values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), tensor.sizes.begin());
  std::ranges::copy(descriptor.Values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES), tensor.strides.begin());
  return tensor;
}

std::array<int64_t, 2> Pair(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const std::vector<int64_t> values = descriptor.Values<int64_t>(name);
  return {values[0], values[1]};
}

cudnnStatus_t CheckTensor(const Descriptor& descriptor) {
  const auto type = descriptor.Value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("a tensor of data type ", type));
  }
  const Tensor tensor = ToTensor(descriptor);
  const bool positive = std::ranges::min(tensor.sizes) > 0 && std::ranges::min(tensor.strides) > 0;
  if (!positive || tensor.alignment % tensor.ElementBytes() != 0 ||
      !std::has_single_bit(static_cast<uint64_t>(tensor.alignment))) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a tensor's sizes, strides or alignment");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckGeometry(const Descriptor& descriptor) {
  if (descriptor.Value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
      descriptor.Value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) !=
          CUDNN_CROSS_CORRELATION ||
      descriptor.Value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, "a convolution's type, mode or number of dimensions");
  }
  for (int d = 0; d < 2; ++d) {
    if (Pair(descriptor, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[d] < 0 ||
        Pair(descriptor, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)[d] < 0 ||
        Pair(descriptor, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[d] < 1 ||
        Pair(descriptor, CUDNN_ATTR_CONVOLUTION_DILATIONS)[d] < 1) {
      return Fail(CUDNN_STATUS_BAD_PARAM, "a convolution's paddings, strides or dilations");
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

bool IsConvolution(const Descriptor& operation) {
  return operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

Convolution ConvolutionOf(const Descriptor& operation) {
  struct Names {
    ConvolutionKind kind;
    cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
  };
#define NAMES(kind, prefix, x, w, y)                                          \
  Names {                                                                     \
    ConvolutionKind::kind, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA, \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA,                     \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_CONV_DESC,                \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##x,                      \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##w,                      \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##y                       \
  }
  const Names names =
      operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
          ? NAMES(kForward, FORWARD, X, W, Y)
      : operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
          ? NAMES(kBackwardData, BWD_DATA, DX, W, DY)
          : NAMES(kBackwardFilter, BWD_FILTER, X, DW, DY);
  const Descriptor& geometry = *operation.Reference(names.convolution);
  Convolution result;
  result.kind = names.kind;
  result.x = ToTensor(*operation.Reference(names.x));
  result.w = ToTensor(*operation.Reference(names.w));
  result.y = ToTensor(*operation.Reference(names.y));
  result.padding = Pair(geometry, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  result.end_padding = Pair(geometry, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  result.stride = Pair(geometry, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  result.dilation = Pair(geometry, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  result.alpha = operation.Scalar(names.alpha);
  result.beta = operation.Scalar(names.beta);
  return result;
}

struct Pointwise {
  cudnnPointwiseMode_t mode;
  bool keeps_nan = false;
  Tensor x, y;
  std::optional<Tensor> b;
};

// Returns nullopt if the operation is not pointwise, or does not compute in float32.
std::optional<Pointwise> ToPointwise(const Descriptor& operation) {
  if (operation.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return std::nullopt;
  const Descriptor& function = *operation.Reference(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (function.Value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT) {
    return std::nullopt;
  }
  Pointwise result;
  result.mode = function.Value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const auto nan = function.Values<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION);
  result.keeps_nan = !nan.empty() && nan[0] == CUDNN_PROPAGATE_NAN;
  result.x = ToTensor(*operation.Reference(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
  result.y = ToTensor(*operation.Reference(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  if (operation.attributes.count(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) > 0) {
    result.b = ToTensor(*operation.Reference(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
  }
  return result;
}

// Returns whether the next operation reads what one operation writes, unrounded and seen by no
// other.
bool Leads(const Tensor& written, const Tensor& read) {
  return written.is_virtual && written.id == read.id && !written.bfloat16;
}

// Checks that an operation's references are of the types that their names say.
cudnnStatus_t CheckReferenceTypes(const Descriptor& operation) {
  for (const auto& [name, attribute] : operation.attributes) {
    if (attribute.descriptors.empty()) continue;
    const absl::string_view text = FindRule(operation.type, name)->text;
    const auto expected = absl::EndsWith(text, "CONV_DESC") ? CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
                          : absl::EndsWith(text, "PW_DESCRIPTOR")
                              ? CUDNN_BACKEND_POINTWISE_DESCRIPTOR
                              : CUDNN_BACKEND_TENSOR_DESCRIPTOR;
    if (attribute.descriptors[0]->type != expected) {
      return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat(text, " is a descriptor of another type"));
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckConvolution(const Descriptor& operation) {
  if (cudnnStatus_t status = CheckReferenceTypes(operation)) return status;
  const Convolution c = ConvolutionOf(operation);
  bool fits =
      c.x.sizes[0] == c.y.sizes[0] && c.w.sizes[0] == c.y.sizes[1] && c.w.sizes[1] == c.x.sizes[1];
  for (int d = 0; d < 2; ++d) {
    const int64_t span = c.x.sizes[2 + d] + c.padding[d] + c.end_padding[d] -
                         (c.w.sizes[2 + d] - 1) * c.dilation[d] - 1;
    fits = fits && span >= 0 && c.y.sizes[2 + d] == span / c.stride[d] + 1;
  }
  if (fits) return CUDNN_STATUS_SUCCESS;
  return Fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
              "the sizes of a convolution's input, filter and output do not fit one another");
}

cudnnStatus_t CheckPointwise(const Descriptor& operation) {
  if (cudnnStatus_t status = CheckReferenceTypes(operation)) return status;
  const std::optional<Pointwise> pointwise = ToPointwise(operation);
  if (!pointwise.has_value() ||
      pointwise->b.has_value() != (pointwise->mode == CUDNN_POINTWISE_ADD)) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a pointwise operation's type or number of operands");
  }
  const Tensor& x = pointwise->x;
  bool fits = x.sizes == pointwise->y.sizes;
  if (pointwise->b.has_value()) {  // it is repeated along dimensions of size 1
    for (int d = 0; d < 4; ++d) {
      fits = fits && (pointwise->b->sizes[d] == x.sizes[d] || pointwise->b->sizes[d] == 1);
    }
  }
  if (fits) return CUDNN_STATUS_SUCCESS;
  return Fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the sizes of a pointwise operation");
}

cudnnStatus_t CheckType(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                        cudnnBackendDescriptorType_t type) {
  if (descriptor.Reference(name)->type == type) return CUDNN_STATUS_SUCCESS;
  return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat(FindRule(descriptor.type, name)->text,
                                                   " is a descriptor of another type"));
}

// cuDNN's engines require this, though it accepts graphs that do not satisfy it.
bool OfOneType(Convolution convolution) {
  return std::ranges::all_of(convolution.tensors(), [&](const Tensor* tensor) {
    return tensor->bfloat16 == convolution.x.bfloat16;
  });
}

DescriptorPtr MakeEngineConfig(const DescriptorPtr& graph, int64_t engine_index) {
  auto engine = std::make_shared<Descriptor>(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine->Compute(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, std::vector<DescriptorPtr>{graph});
  engine->Compute(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, std::vector<int64_t>{engine_index});
  Finalize(*engine);
  auto config = std::make_shared<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config->Compute(CUDNN_ATTR_ENGINECFG_ENGINE, std::vector<DescriptorPtr>{engine});
  Finalize(*config);
  return config;
}

// Does what finalizing requires beyond checking that all required attributes are set.
cudnnStatus_t Complete(Descriptor& descriptor) {
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return CheckTensor(descriptor);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return CheckGeometry(descriptor);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return CheckConvolution(descriptor);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return CheckPointwise(descriptor);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      if (!ToConvolution(descriptor).has_value()) {
        return Fail(CUDNN_STATUS_NOT_SUPPORTED,
                    "a graph of something else than a convolution, or one with bias and ReLU");
      }
      return CheckHandle(descriptor.Value<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      const auto graph_name = CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH;
      if (cudnnStatus_t status =
              CheckType(descriptor, graph_name, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)) {
        return status;
      }
      const DescriptorPtr& graph = descriptor.Reference(graph_name);
      std::vector<DescriptorPtr> results;
      if (OfOneType(*ToConvolution(*graph))) results.push_back(MakeEngineConfig(graph, 0));
      if (!results.empty() && descriptor.Value<cudnnBackendHeurMode_t>(
                                  CUDNN_ATTR_ENGINEHEUR_MODE) != CUDNN_HEUR_MODE_FALLBACK) {
        results.insert(results.begin(), MakeEngineConfig(graph, 1));
      }
      descriptor.Compute(CUDNN_ATTR_ENGINEHEUR_RESULTS, results);
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: {
      const auto index = descriptor.Value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
      if (index < 0 || index > 1) {
        return Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("engine ", index, " of 2"));
      }
      std::vector<cudnnBackendNumericalNote_t> notes;
      if (index == 1) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
      descriptor.Compute(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes);
      return CheckType(descriptor, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                       CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return CheckType(descriptor, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const auto config_name = CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
      if (cudnnStatus_t status =
              CheckType(descriptor, config_name, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
        return status;
      }
      const Descriptor& engine =
          *descriptor.Reference(config_name)->Reference(CUDNN_ATTR_ENGINECFG_ENGINE);
      const bool second = engine.Value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == 1;
      descriptor.Compute(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                         std::vector<int64_t>{second ? kWorkspaceBytes : 0});
      return CheckHandle(descriptor.Value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
    }
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: {
      auto ids = descriptor.Values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
      const auto pointers = descriptor.Values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
      std::ranges::sort(ids);
      if (ids.size() != pointers.size() || std::ranges::adjacent_find(ids) != ids.end()) {
        return Fail(CUDNN_STATUS_BAD_PARAM,
                    absl::StrCat("a variant pack's ", ids.size(), " ids for ", pointers.size(),
                                 " pointers, or one of them twice"));
      }
      return CUDNN_STATUS_SUCCESS;
    }
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

}  // namespace

cudnnStatus_t Fail(cudnnStatus_t status, std::string text) {
  SetProblem(std::move(text));
  return status;
}

cudnnStatus_t CheckHandle(cudnnHandle_t handle) {
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (state.dnn_handles.count(handle) > 0) return CUDNN_STATUS_SUCCESS;
  return Fail(CUDNN_STATUS_NOT_INITIALIZED, "not a cuDNN handle that is alive");
}

const Rule* FindRule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name) {
  const auto* found = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& rule) {
    return rule.owner == owner && rule.name == name;
  });
  return found == std::end(kRules) ? nullptr : found;
}

bool IsKnown(cudnnBackendDescriptorType_t type) {
  return std::ranges::any_of(kRules, [type](const Rule& rule) { return rule.owner == type; });
}

size_t ElementBytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    default:
      return 4;  // float and enumerations
  }
}

std::optional<Convolution> ToConvolution(const Descriptor& graph) {
  const auto& operations = graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors;
  if (!IsConvolution(*operations[0])) return std::nullopt;
  Convolution convolution = ConvolutionOf(*operations[0]);
  if (operations.size() == 3 && convolution.kind == ConvolutionKind::kForward) {
    const std::optional<Pointwise> add = ToPointwise(*operations[1]);
    const std::optional<Pointwise> relu = ToPointwise(*operations[2]);
    if (!add.has_value() || add->mode != CUDNN_POINTWISE_ADD || !relu.has_value() ||
        relu->mode != CUDNN_POINTWISE_RELU_FWD || !Leads(convolution.y, add->x) ||
        !Leads(add->y, relu->x)) {
      return std::nullopt;
    }
    convolution.then = {*add->b, relu->keeps_nan};
    convolution.y = relu->y;
  } else if (operations.size() != 1) {
    return std::nullopt;
  }
  for (const Tensor* tensor : convolution.tensors()) {
    if (tensor->is_virtual) return std::nullopt;
  }
  return convolution;
}

cudnnStatus_t CheckReferences(const Descriptor& descriptor) {
  for (const auto& [name, attribute] : descriptor.attributes) {
    for (const DescriptorPtr& reference : attribute.descriptors) {
      if (reference->destroyed) {
        return Fail(CUDNN_STATUS_BAD_PARAM,
                    absl::StrCat("the descriptor set as ", FindRule(descriptor.type, name)->text,
                                 " was destroyed before its last use"));
      }
      if (cudnnStatus_t status = CheckReferences(*reference)) return status;
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Finalize(Descriptor& descriptor) {
  if (descriptor.finalized) return Fail(CUDNN_STATUS_BAD_PARAM, "finalized twice");
  for (const Rule& rule : kRules) {
    if (rule.owner == descriptor.type && rule.kind == Rule::kRequired &&
        descriptor.attributes.count(rule.name) == 0) {
      return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat(rule.text, " is not set"));
    }
  }
  if (cudnnStatus_t status = CheckReferences(descriptor)) return status;
  if (cudnnStatus_t status = Complete(descriptor)) return status;
  descriptor.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace evenshard::cuda_stand_in
