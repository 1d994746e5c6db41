#ifndef EVENSHARD_WORKER_REPORTING_NVML_H_
#define EVENSHARD_WORKER_REPORTING_NVML_H_

#include <string>

#include "proto/worker_usage.pb.h"

namespace evenshard {

// NVIDIA's management library (NVML). It comes with the driver and is therefore loaded at run time.
// Not thread-safe.
class Nvml {
 public:
  // Loads `library`. If that fails, Read returns no values.
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns the use of the GPU with a PCI bus id such as "0000:65:00.0" by all processes together,
  // over the last second or less: of the fields those from device_utilization_percent to
  // device_memory_total_bytes. What NVML does not report is absent; all is if there is no such GPU.
  WorkerUsage Read(const std::string& pci_bus_id) const;

 private:
  // These types match NVML's C interface, in which nvmlReturn_t is an enum with NVML_SUCCESS = 0
  // and nvmlDevice_t is a pointer.
  using Result = int;
  using Device = void*;
  struct Utilization {  // nvmlUtilization_t, in percent
    unsigned int gpu;
    unsigned int memory;
  };
  struct Memory {  // nvmlMemory_t, in bytes
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
  };

  // Sets `function` to the library's function of that name, or returns false if there is none.
  template <typename Function>
  bool Find(const char* name, Function** function) const;

  void* library_ = nullptr;   // null if it was not found
  bool initialized_ = false;  // the functions below have been found and may be called
  Result (*init_)() = nullptr;
  Result (*shutdown_)() = nullptr;
  Result (*get_device_)(const char* pci_bus_id, Device* device) = nullptr;
  Result (*get_utilization_)(Device device, Utilization* utilization) = nullptr;
  Result (*get_memory_)(Device device, Memory* memory) = nullptr;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_REPORTING_NVML_H_
