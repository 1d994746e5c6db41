// The stand-in's CUDA runtime; see device.h.

#include <cuda_runtime_api.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/testing/cuda/stream.h"

namespace evenshard::cuda_stand_in {
namespace {

constexpr int kPciDomain = 0xffff;  // no real device has it

// REQUIRES: the caller holds the state's mutex.
bool CheckEvent(const State& state, cudaEvent_t event) {
  if (state.events.count(event) > 0) return true;
  SetProblem("not an event that is alive");
  return false;
}

cudaError_t CheckDevice(int device) {
  if (cudaError_t error = Usable()) return error;
  const int devices = GlobalState().options.devices;
  if (device >= 0 && device < devices) return cudaSuccess;
  return Fail(cudaErrorInvalidDevice, absl::StrCat("device ", device, " of ", devices));
}

}  // namespace
}  // namespace evenshard::cuda_stand_in

using namespace evenshard::cuda_stand_in;  // NOLINT: what follows is C

// The device.

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (cudaError_t error = Usable()) return error;
  *count = GlobalState().options.devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (cudaError_t error = CheckDevice(device)) return error;
  CurrentDevice() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (cudaError_t error = Usable()) return error;
  *device = CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (cudaError_t error = CheckDevice(device)) return error;
  const Options& options = GlobalState().options;
  *properties = {};
  std::strcpy(properties->name, "CPU stand-in for a CUDA device");
  properties->totalGlobalMem = options.memory_bytes;
  properties->major = options.compute_major;
  properties->minor = options.compute_minor;
  properties->multiProcessorCount = 1;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->pciDomainID = kPciDomain;
  properties->pciBusID = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrPciDomainId:
      *value = properties.pciDomainID;
      break;
    case cudaDevAttrPciBusId:
      *value = properties.pciBusID;
      break;
    case cudaDevAttrPciDeviceId:
      *value = properties.pciDeviceID;
      break;
    default:
      return Fail(cudaErrorInvalidValue,
                  absl::StrCat("the stand-in does not know device attribute ", attribute));
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (cudaError_t error = CheckDevice(device)) return error;
  const std::string text = absl::StrFormat("%04X:%02X:00.0", kPciDomain, device);
  if (length <= static_cast<int>(text.size())) return Fail(cudaErrorInvalidValue, "too short");
  std::strcpy(id, text.c_str());
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = GlobalState().options.driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = GlobalState().options.runtime_version;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (InStream()) return Usable();
  Drain();
  return Usable();
}

// Streams.

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (cudaError_t error = Usable()) return error;
  if ((flags & ~cudaStreamNonBlocking) != 0) return Fail(cudaErrorInvalidValue, "unknown flags");
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  const uint64_t number = state.streams.size() + state.retired_streams.size();
  *stream = new CUstream_st(CurrentDevice(), state.options.longest_delay,
                            state.options.seed * 1000003 + number);
  state.streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (cudaError_t error = Usable()) return error;
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t usable = Usable();
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (!CheckStream(state, stream)) return Fail(cudaErrorInvalidResourceHandle);
  state.streams.erase(stream);
  state.retired_streams.push_back(stream);
  return usable;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (InStream()) return Usable();
  State& state = GlobalState();
  std::unique_lock lock(state.mutex);
  if (!CheckStream(state, stream)) return Fail(cudaErrorInvalidResourceHandle);
  const Moment* moment = PushMoment(state, stream);
  lock.unlock();
  moment->reached.AwaitOtherThan(0);
  return Usable();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (cudaError_t error = Usable()) return error;
  if (flags != cudaEventWaitDefault) return Fail(cudaErrorInvalidValue, "unknown flags");
  State& state = GlobalState();
  std::unique_lock lock(state.mutex);
  if (!CheckEvent(state, event)) return Fail(cudaErrorInvalidResourceHandle);
  const Moment* moment = event->recorded;
  lock.unlock();
  const auto wait = [moment] {
    if (moment != nullptr) moment->reached.AwaitOtherThan(0);
  };
  return Enqueue(stream, wait, /*always=*/true);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (cudaError_t error = Usable()) return error;
  if (function == nullptr) return Fail(cudaErrorInvalidValue, "a null function");
  return Enqueue(stream, [function, data] { function(data); });
}

// Events.

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (cudaError_t error = Usable()) return error;
  if ((flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
    return Fail(cudaErrorInvalidValue, "flags that are unknown or for several processes");
  }
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  *event = new CUevent_st{CurrentDevice(), flags};
  state.events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t usable = Usable();
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (!CheckEvent(state, event)) return Fail(cudaErrorInvalidResourceHandle);
  state.events.erase(event);
  delete event;
  return usable;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (cudaError_t error = Usable()) return error;
  State& state = GlobalState();
  Moment* moment;
  {
    std::lock_guard lock(state.mutex);
    if (!CheckEvent(state, event) || !CheckStream(state, stream)) {
      return Fail(cudaErrorInvalidResourceHandle);
    }
    if (event->device != stream->device) {
      return Fail(cudaErrorInvalidResourceHandle, "an event of another device than the stream");
    }
    if (++state.totals.enqueues == state.lose_at) state.lost = state.loss;
    moment = PushMoment(state, stream);
    event->recorded = moment;
  }
  return Usable();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (InStream()) return Usable();
  State& state = GlobalState();
  std::unique_lock lock(state.mutex);
  if (!CheckEvent(state, event)) return Fail(cudaErrorInvalidResourceHandle);
  const Moment* moment = event->recorded;
  lock.unlock();
  if (moment != nullptr) moment->reached.AwaitOtherThan(0);
  return Usable();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (cudaError_t error = Usable()) return error;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (!CheckEvent(state, event)) return Fail(cudaErrorInvalidResourceHandle);
  if (event->recorded == nullptr || event->recorded->reached.OtherThan(0)) return cudaSuccess;
  return Fail(cudaErrorNotReady, "the event is not reached");
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (cudaError_t error = Usable()) return error;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  for (cudaEvent_t event : {start, end}) {
    if (!CheckEvent(state, event)) return Fail(cudaErrorInvalidResourceHandle);
    if (event->recorded == nullptr || (event->flags & cudaEventDisableTiming) != 0) {
      return Fail(cudaErrorInvalidResourceHandle, "an event not recorded, or without timing");
    }
  }
  for (cudaEvent_t event : {start, end}) {
    if (!event->recorded->reached.OtherThan(0)) {
      return Fail(cudaErrorNotReady, "the event is not reached");
    }
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->recorded->at - start->recorded->at).count();
  return cudaSuccess;
}

// Errors.

cudaError_t cudaPeekAtLastError() {
  const cudaError_t lost = GlobalState().lost;
  return lost != cudaSuccess ? lost : LastError();
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  LastError() = cudaSuccess;
  return error;
}

#define EVENSHARD_CUDA_ERRORS(ERROR)                                                      \
  ERROR(cudaSuccess, "no error")                                                          \
  ERROR(cudaErrorInvalidValue, "invalid argument")                                        \
  ERROR(cudaErrorMemoryAllocation, "out of memory")                                       \
  ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")             \
  ERROR(cudaErrorInsufficientDriver,                                                      \
        "CUDA driver version is insufficient for CUDA runtime version")                   \
  ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected")                          \
  ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable") \
  ERROR(cudaErrorInvalidDevice, "invalid device ordinal")                                 \
  ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle")                        \
  ERROR(cudaErrorNotReady, "device not ready")                                            \
  ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered")              \
  ERROR(cudaErrorHostMemoryAlreadyRegistered,                                             \
        "part or all of the requested memory range is already mapped")                    \
  ERROR(cudaErrorHostMemoryNotRegistered,                                                 \
        "pointer does not correspond to a registered memory region")                      \
  ERROR(cudaErrorLaunchFailure, "unspecified launch failure")                             \
  ERROR(cudaErrorNotPermitted, "operation not permitted")

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(error, text) \
  case error:             \
    return #error;
    EVENSHARD_CUDA_ERRORS(NAME)
    default:
      return "unrecognized error code";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define TEXT(error, text) \
  case error:             \
    return text;
    EVENSHARD_CUDA_ERRORS(TEXT)
    default:
      return "unrecognized error code";
  }
}
