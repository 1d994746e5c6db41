// The stand-in's cuDNN. See device.h, and descriptor.h for the convolutions that it supports.

#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda/descriptor.h"
#include "tests/testing/cuda/state.h"

namespace evenshard::cuda_stand_in {
namespace {

// All descriptors that are alive, by the address that the caller holds.
struct Registry {
  std::mutex mutex;
  std::map<const void*, DescriptorPtr> descriptors;
};
Registry& Descriptors() {
  static Registry registry;
  return registry;
}

DescriptorPtr Find(const void* descriptor) {
  Registry& registry = Descriptors();
  std::lock_guard lock(registry.mutex);
  auto found = registry.descriptors.find(descriptor);
  if (found != registry.descriptors.end()) return found->second;
  SetProblem("not a descriptor that is alive");
  return nullptr;
}

// Sets the tensor's data from the variant pack, and checks it.
cudnnStatus_t Bind(const Descriptor& pack, cudaStream_t stream, Tensor* tensor) {
  const auto ids = pack.Values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.Values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const std::string what = absl::StrCat("tensor ", tensor->id);
  const auto found = std::ranges::find(ids, tensor->id);
  if (found == ids.end() || pointers[found - ids.begin()] == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, absl::StrCat(what, ": no pointer"));
  }
  tensor->data = pointers[found - ids.begin()];
  if (reinterpret_cast<uintptr_t>(tensor->data) % tensor->alignment != 0) {
    return Fail(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                absl::StrCat(what, ": not aligned to ", tensor->alignment, " bytes"));
  }
  return OnDevice(tensor->data, tensor->Bytes(), stream, what) ? CUDNN_STATUS_SUCCESS
                                                               : CUDNN_STATUS_BAD_PARAM;
}

}  // namespace
}  // namespace evenshard::cuda_stand_in

using namespace evenshard::cuda_stand_in;  // NOLINT: what follows is C

size_t cudnnGetVersion() { return GlobalState().options.cudnn_version; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (Usable() != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  *handle = new cudnnContext;
  state.dnn_handles.insert(*handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  if (cudnnStatus_t status = CheckHandle(handle)) return status;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  state.dnn_handles.erase(handle);
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (cudnnStatus_t status = CheckHandle(handle)) return status;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  if (!IsKnown(type)) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED,
                absl::StrCat("the stand-in does not know descriptor type ", type));
  }
  auto made = std::make_shared<Descriptor>(type);
  *descriptor = made.get();
  Registry& registry = Descriptors();
  std::lock_guard lock(registry.mutex);
  registry.descriptors[*descriptor] = std::move(made);
  std::lock_guard state_lock(GlobalState().mutex);
  ++GlobalState().dnn_descriptors;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const DescriptorPtr found = Find(descriptor);
  if (found == nullptr) return CUDNN_STATUS_BAD_PARAM;
  found->destroyed = true;
  Registry& registry = Descriptors();
  std::lock_guard lock(registry.mutex);
  registry.descriptors.erase(descriptor);
  std::lock_guard state_lock(GlobalState().mutex);
  --GlobalState().dnn_descriptors;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  const DescriptorPtr to = Find(descriptor);
  if (to == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const Rule* rule = FindRule(to->type, name);
  if (rule == nullptr || rule->kind == Rule::kComputed) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED,
                absl::StrCat("attribute ", name, " cannot be set on descriptor type ", to->type));
  }
  if (to->finalized) return Fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
  const bool as_double = rule->type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE;
  if (type != rule->type && !as_double) {
    return Fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                absl::StrCat(rule->text, " is of type ", rule->type, ", not ", type));
  }
  if (count < rule->least || count > rule->most || elements == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat(rule->text, " has ", rule->least, " to ",
                                                     rule->most, " elements, not ", count));
  }
  Attribute attribute = {type, count, {}, {}};
  const char* first = static_cast<const char*>(elements);
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    attribute.bytes.assign(first, first + count * ElementBytes(type));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      DescriptorPtr reference = Find(static_cast<const cudnnBackendDescriptor_t*>(elements)[i]);
      if (reference == nullptr) return CUDNN_STATUS_BAD_PARAM;
      if (!reference->finalized) {
        return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                    absl::StrCat(rule->text, " is not finalized"));
      }
      attribute.descriptors.push_back(std::move(reference));
    }
  }
  to->attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const DescriptorPtr found = Find(descriptor);
  return found == nullptr ? CUDNN_STATUS_BAD_PARAM : Finalize(*found);
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* elements) {
  const DescriptorPtr from = Find(descriptor);
  if (from == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (!from->finalized) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
  }
  const auto found = from->attributes.find(name);
  if (found == from->attributes.end() || found->second.type != type) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat("attribute ", name, " of type ", type,
                                                     " of descriptor type ", from->type));
  }
  const Attribute& attribute = found->second;
  if (count != nullptr) *count = attribute.count;
  const int64_t copied = elements == nullptr ? 0 : std::min(requested, attribute.count);
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    if (copied > 0) std::memcpy(elements, attribute.bytes.data(), copied * ElementBytes(type));
    return CUDNN_STATUS_SUCCESS;
  }
  // Fill the descriptors that the caller made.
  for (int64_t i = 0; i < copied; ++i) {
    const DescriptorPtr to = Find(static_cast<const cudnnBackendDescriptor_t*>(elements)[i]);
    if (to == nullptr) return CUDNN_STATUS_BAD_PARAM;
    if (to->type != attribute.descriptors[i]->type || to->finalized) {
      return Fail(CUDNN_STATUS_BAD_PARAM,
                  "what is to be filled is of another type, or finalized already");
    }
    to->attributes = attribute.descriptors[i]->attributes;
    to->finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t execution_plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  if (Usable() != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  if (cudnnStatus_t status = CheckHandle(handle)) return status;
  const DescriptorPtr plan = Find(execution_plan);
  const DescriptorPtr pack = Find(variant_pack);
  if (plan == nullptr || pack == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    return Fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no execution plan, or no variant pack");
  }
  if (!plan->finalized || !pack->finalized) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the pack is not finalized");
  }
  if (cudnnStatus_t status = CheckReferences(*plan)) return status;

  const Descriptor& config = *plan->Reference(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Descriptor& engine = *config.Reference(CUDNN_ATTR_ENGINECFG_ENGINE);
  const Descriptor& graph = *engine.Reference(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  Convolution convolution = *ToConvolution(graph);
  bool floats = false;
  for (Tensor* tensor : convolution.tensors()) {
    if (cudnnStatus_t status = Bind(*pack, handle->stream, tensor)) return status;
    floats = floats || !tensor->bfloat16;
  }
  const auto workspace_bytes = plan->Value<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  const auto workspaces = pack->Values<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  void* workspace = workspaces.empty() ? nullptr : workspaces[0];
  if (workspace_bytes > 0 && !OnDevice(workspace, workspace_bytes, handle->stream, "workspace")) {
    return CUDNN_STATUS_BAD_PARAM;
  }

  const auto work = [convolution, workspace, workspace_bytes]() mutable {
    const WorkspaceUse use(workspace, workspace_bytes);
    convolution.Compute();
    const Tensor& output = convolution.output();
    if (use.Disturbed()) std::memset(output.data, 0xff, output.Bytes());
  };
  if (Enqueue(handle->stream, work) != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  ++state.totals.convolutions;
  if (floats && engine.Value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == 1) {
    ++state.totals.tf32_calls;
  }
  return CUDNN_STATUS_SUCCESS;
}

void cudnnGetLastErrorString(char* message, size_t size) {
  if (size == 0) return;
  message[LastProblem().copy(message, size - 1)] = '\0';
}

#define STATUS(status) \
  case status:         \
    return #status;

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    STATUS(CUDNN_STATUS_SUCCESS)
    STATUS(CUDNN_STATUS_NOT_INITIALIZED)
    STATUS(CUDNN_STATUS_BAD_PARAM)
    STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER)
    STATUS(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)
    STATUS(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED)
    STATUS(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH)
    STATUS(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE)
    STATUS(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE)
    STATUS(CUDNN_STATUS_NOT_SUPPORTED)
    STATUS(CUDNN_STATUS_EXECUTION_FAILED)
    default:
      return "unknown cuDNN status";
  }
}
