#include "worker/reporting/usage_reporter.h"

#include "common/process/resident_memory.h"
#include "spdlog/spdlog.h"

namespace evenshard {

UsageReporter::UsageReporter(const Options& options)
    : options_(options), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void UsageReporter::Run(const std::stop_token& stop) {
  bool failure_logged = false;
  do {
    const absl::Status sent = options_.send(Usage(), stop);
    if (!sent.ok() && !stop.stop_requested() && !failure_logged) {
      failure_logged = true;
      spdlog::info("the statistics may lack what this worker uses: {}",
                   std::string(sent.message()));
    }
  } while (options_.clock->SleepUntil(options_.clock->Now() + options_.period, stop));
}

WorkerUsage UsageReporter::Usage() {
  WorkerUsage usage;
  usage.set_resident_bytes(ResidentBytes());
  AddDevice(&usage);
  AddTraining(&usage);
  return usage;
}

void UsageReporter::AddDevice(WorkerUsage* usage) {
  const std::optional<DeviceUsage> device = options_.backend->Usage();
  if (!device.has_value()) return;
  usage->set_device(device->name);
  usage->set_pci_bus_id(device->pci_bus_id);
  usage->set_device_bytes(device->bytes);

  if (!nvml_.has_value()) nvml_.emplace(options_.nvml_library);
  usage->MergeFrom(nvml_->Read(device->pci_bus_id));
}

void UsageReporter::AddTraining(WorkerUsage* usage) {
  const TrainingTotals now = options_.totals();
  if (const double seconds = now.seconds - before_.seconds; seconds > 0) {
    images_per_second_ = (now.images - before_.images) / seconds;
    exchange_wait_fraction_ = (now.exchange_wait_seconds - before_.exchange_wait_seconds) / seconds;
    before_ = now;
  }
  if (images_per_second_.has_value()) usage->set_images_per_second(*images_per_second_);
  if (exchange_wait_fraction_.has_value()) {
    usage->set_exchange_wait_fraction(*exchange_wait_fraction_);
  }
}

}  // namespace evenshard
