// Wraps cuDNN itself, in place of the stand-in's. Since version 9.8, cuDNN can say what it would do
// on a device that is not there if it is given the device's properties. Here these are the
// properties of a device with the compute capability in Options. As on a device, cuDNN takes
// graphs, recommends engines and makes plans. Executing a plan does nothing.

#include <cudnn.h>
#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "absl/strings/substitute.h"
#include "tests/testing/cuda/state.h"

struct cudnnContext {
  cudnnBackendDescriptor_t device_properties = nullptr;
};

namespace evenshard::cuda_stand_in {
namespace {

template <typename Function>
Function* Real(const char* name, Function*) {
  static void* const library = dlopen(CUDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) {
    std::cerr << dlerror() << '\n';
    std::abort();
  }
  return reinterpret_cast<Function*>(function);
}
#define REAL(function) Real(#function, &function)

// The differences between generations of GPUs, for one GPU of each. `capability` is 10 * major +
// minor.
struct Generation {
  int capability;
  int multiprocessors;
  int shared_memory;  // the most that a block can request, in bytes
};
constexpr Generation kGenerations[] = {
    {75, 40, 64 << 10},    // T4
    {80, 108, 163 << 10},  // A100
    {86, 84, 99 << 10},    // A40
    {89, 142, 99 << 10},   // L40
    {90, 132, 227 << 10},  // H200
};

// Returns a device's properties in cuDNN's format (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). The
// properties on which nothing depends are those of an H200.
std::string DeviceProperties(const Generation& generation) {
  return absl::Substitute(
      R"({"deviceName": "a device that is not there", "cudaDeviceId": 0, "pciDeviceId": 0,
          "deviceVer": $0, "driverVer": $1, "multiProcessorCount": $2,
          "maxSharedMemoryPerBlockOptin": $3, "maxSharedMemoryPerBlock": 49152,
          "reservedSharedMemoryPerBlock": 1024, "maxGridSize": [2147483647, 65535, 65535],
          "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
          "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "warpSize": 32,
          "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 150754820096,
          "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560})",
      generation.capability * 10, CUDART_VERSION, generation.multiprocessors,
      generation.shared_memory);
}

// The device of each graph. Tests use it from one thread only.
std::map<cudnnBackendDescriptor_t, cudnnHandle_t>& HandlesOfGraphs() {
  static std::map<cudnnBackendDescriptor_t, cudnnHandle_t> handles;
  return handles;
}

cudnnStatus_t SetDeviceProperties(cudnnBackendDescriptor_t descriptor,
                                  cudnnBackendAttributeName_t name, cudnnHandle_t handle) {
  return REAL(cudnnBackendSetAttribute)(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &handle->device_properties);
}

}  // namespace
}  // namespace evenshard::cuda_stand_in

using namespace evenshard::cuda_stand_in;  // NOLINT: what follows is C

size_t cudnnGetVersion() { return REAL(cudnnGetVersion)(); }

const char* cudnnGetErrorString(cudnnStatus_t status) { return REAL(cudnnGetErrorString)(status); }

void cudnnGetLastErrorString(char* message, size_t size) {
  REAL(cudnnGetLastErrorString)(message, size);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Options& options = GlobalState().options;
  const int capability = 10 * options.compute_major + options.compute_minor;
  const Generation* generation = nullptr;
  for (const Generation& known : kGenerations) {
    if (known.capability == capability) generation = &known;
  }
  if (generation == nullptr) {
    std::cerr << "no device of compute capability " << capability << " is known\n";
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  cudnnBackendDescriptor_t properties = nullptr;
  if (cudnnStatus_t status =
          REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties)) {
    return status;
  }
  *handle = new cudnnContext{properties};
  const std::string json = DeviceProperties(*generation);
  if (cudnnStatus_t status = REAL(cudnnBackendSetAttribute)(
          properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
          static_cast<int64_t>(json.size()), json.data())) {
    return status;
  }
  return REAL(cudnnBackendFinalize)(properties);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const cudnnStatus_t status = REAL(cudnnBackendDestroyDescriptor)(handle->device_properties);
  delete handle;
  return status;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return REAL(cudnnBackendCreateDescriptor)(type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  HandlesOfGraphs().erase(descriptor);
  return REAL(cudnnBackendDestroyDescriptor)(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  // Set the device's properties instead of its handle.
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) {
    HandlesOfGraphs()[descriptor] = *static_cast<const cudnnHandle_t*>(elements);
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) {
    return SetDeviceProperties(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                               *static_cast<const cudnnHandle_t*>(elements));
  }
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) {
    const auto graph = *static_cast<const cudnnBackendDescriptor_t*>(elements);
    if (cudnnStatus_t status = SetDeviceProperties(descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                                   HandlesOfGraphs().at(graph))) {
      return status;
    }
  }
  return REAL(cudnnBackendSetAttribute)(descriptor, name, type, count, elements);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return REAL(cudnnBackendFinalize)(descriptor);
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* elements) {
  return REAL(cudnnBackendGetAttribute)(descriptor, name, type, requested, count, elements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t,
                                  cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}
