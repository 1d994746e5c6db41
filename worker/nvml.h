#ifndef PS_WORKER_NVML_H_
#define PS_WORKER_NVML_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ps {

// Of a whole GPU, whoever uses it; absent where NVML does not tell.
struct GpuUsage {
  std::optional<uint32_t> utilization_percent;  // of the last second or less
  std::optional<uint64_t> memory_used_bytes;
  std::optional<uint64_t> memory_total_bytes;
};

// NVIDIA's management library (NVML), which comes with the driver, so it is looked for when the
// program runs. Not thread-safe.
class Nvml {
 public:
  // Loads `library`. Where that fails, everything is absent.
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Of the GPU with this PCI bus id, "0000:65:00.0"; all is absent where there is no such GPU.
  GpuUsage Read(const std::string& pci_bus_id) const;

 private:
  // NVML's C interface, as its API reference has it: nvmlReturn_t is an enum whose
  // NVML_SUCCESS is 0, nvmlDevice_t a pointer.
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

  // Sets `function` to the library's function of that name; false where it has none.
  template <typename Function>
  bool Find(const char* name, Function** function) const;

  void* library_ = nullptr;   // null: not found
  bool initialized_ = false;  // the functions below are there and may be called
  Result (*init_)() = nullptr;
  Result (*shutdown_)() = nullptr;
  Result (*get_device_)(const char* pci_bus_id, Device* device) = nullptr;
  Result (*get_utilization_)(Device device, Utilization* utilization) = nullptr;
  Result (*get_memory_)(Device device, Memory* memory) = nullptr;
};

}  // namespace ps

#endif  // PS_WORKER_NVML_H_
