#include "worker/compute/backend.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "common/device_profile.h"
#include "worker/compute/cpu_backend.h"
#include "worker/compute/emulated_backend.h"

namespace ps {

absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateComputeBackend(const Config& config, int rank,
                                                                     const Clock* clock,
                                                                     const std::stop_token& stop) {
  const ClusterConfig& proto = config.proto();
  if (proto.compute().backend() == Compute::EMULATED) {
    absl::StatusOr<std::vector<LayerTime>> times =
        LayerTimes(config.model(), proto.compute().emulated(), proto.training().batch_size());
    if (!times.ok()) return times.status();
    return std::make_unique<EmulatedBackend>(
        config.model(),
        EmulatedBackend::Options{
            .rank = rank, .times = *std::move(times), .clock = clock, .stop = stop});
  }
  CpuBackend::Options options;
  options.batch_size = proto.training().batch_size();
  options.threads = proto.compute().threads();
  if (options.threads == 0) {
    const int processors = static_cast<int>(std::thread::hardware_concurrency());
    options.threads = std::max(1, processors / config.workers());
  }
  options.seed = proto.training().seed();
  options.rank = rank;
  absl::StatusOr<std::unique_ptr<CpuBackend>> backend = CpuBackend::Create(config.model(), options);
  if (!backend.ok()) return backend.status();
  return *std::move(backend);
}

}  // namespace ps
