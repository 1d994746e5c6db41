// A library with NVML's C interface and one GPU. What it lacks is chosen when it is compiled:
//   FAKE_NVML_NO_DRIVER       nvmlInit_v2 fails
//   FAKE_NVML_OLD             there is no nvmlDeviceGetHandleByPciBusId_v2
//   FAKE_NVML_NO_UTILIZATION  the GPU does not tell how busy it is, as one cut into parts does

#include <cstring>

namespace {

int users = 0;
int gpu = 0;  // its address is the handle

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kDriverNotLoaded = 9;

}  // namespace

extern "C" {

struct Utilization {
  unsigned int gpu, memory;
};

struct Memory {
  unsigned long long total, free, used;
};

// For the test: how often it was initialised, less how often it was shut down.
int FakeNvmlUsers() { return users; }

int nvmlInit_v2() {
#ifdef FAKE_NVML_NO_DRIVER
  return kDriverNotLoaded;
#endif
  ++users;
  return kSuccess;
}

int nvmlShutdown() {
  --users;
  return kSuccess;
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci_bus_id, void** device) {
  if (std::strcmp(pci_bus_id, "0000:65:00.0") != 0) return kNotFound;
  *device = &gpu;
  return kSuccess;
}
#endif

int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
#ifdef FAKE_NVML_NO_UTILIZATION
  return kNotSupported;
#endif
  if (device != &gpu) return kInvalidArgument;
  *utilization = {.gpu = 98, .memory = 40};
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (device != &gpu) return kInvalidArgument;
  *memory = {.total = 150'000'000'000, .free = 129'000'000'000, .used = 21'000'000'000};
  return kSuccess;
}

}  // extern "C"
