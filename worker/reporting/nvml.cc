#include "worker/reporting/nvml.h"

#include <dlfcn.h>

namespace evenshard {
namespace {

constexpr int kSuccess = 0;

}  // namespace

template <typename Function>
bool Nvml::Find(const char* name, Function** function) const {
  *function = reinterpret_cast<Function*>(dlsym(library_, name));
  return *function != nullptr;
}

Nvml::Nvml(const std::string& library) : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  initialized_ = Find("nvmlInit_v2", &init_) && Find("nvmlShutdown", &shutdown_) &&
                 Find("nvmlDeviceGetHandleByPciBusId_v2", &get_device_) &&
                 Find("nvmlDeviceGetUtilizationRates", &get_utilization_) &&
                 Find("nvmlDeviceGetMemoryInfo", &get_memory_) && init_() == kSuccess;
}

Nvml::~Nvml() {
  if (initialized_) shutdown_();
  if (library_ != nullptr) dlclose(library_);
}

WorkerUsage Nvml::Read(const std::string& pci_bus_id) const {
  WorkerUsage usage;
  Device device = nullptr;
  if (!initialized_ || get_device_(pci_bus_id.c_str(), &device) != kSuccess) return usage;
  if (Utilization utilization = {}; get_utilization_(device, &utilization) == kSuccess) {
    usage.set_device_utilization_percent(utilization.gpu);
  }
  if (Memory memory = {}; get_memory_(device, &memory) == kSuccess) {
    usage.set_device_memory_used_bytes(memory.used);
    usage.set_device_memory_total_bytes(memory.total);
  }
  return usage;
}

}  // namespace evenshard
