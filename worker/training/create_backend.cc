#include "worker/training/create_backend.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/placement/plan/device_profile.h"
#include "worker/compute/cpu/backend.h"
#include "worker/compute/create_cuda_backend.h"
#include "worker/compute/emulated_backend.h"
#include "worker/compute/paced_backend.h"
#include "worker/compute/processor_share.h"

namespace evenshard {
namespace {

// What each layer takes on the emulated device of a worker.
absl::StatusOr<std::vector<LayerTime>> TimesOf(const PlannedConfig& config,
                                               const Compute::Emulated& emulated, int rank) {
  ASSIGN_OR_RETURN(std::vector<LayerTime> times,
                   LayerTimes(config.model(), emulated, config.proto().training().batch_size()));
  const double slowdown = WorkerSlowdown(emulated, rank);
  for (LayerTime& time : times) {
    time.forward_seconds *= slowdown;
    time.backward_seconds *= slowdown;
  }
  return times;
}

absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateCpuBackend(const PlannedConfig& config,
                                                                 const BackendOptions& options) {
  const ClusterConfig& proto = config.proto();
  CpuBackend::Options cpu;
  cpu.batch_size = proto.training().batch_size();
  cpu.threads = proto.compute().threads();
  if (cpu.threads == 0) cpu.threads = ProcessorShare(config.workers());
  cpu.seed = proto.training().seed();
  cpu.rank = options.rank;
  return CpuBackend::Create(config.model(), cpu);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateComputeBackend(
    const PlannedConfig& config, const BackendOptions& options) {
  const Compute& compute = config.proto().compute();
  if (compute.backend() == Compute::CUDA) return CreateCudaBackend(config, options);
  if (compute.backend() == Compute::EMULATED) {
    ASSIGN_OR_RETURN(std::vector<LayerTime> times,
                     TimesOf(config, compute.emulated(), options.rank));
    return std::make_unique<EmulatedBackend>(config.model(),
                                             EmulatedBackend::Options{.rank = options.rank,
                                                                      .times = std::move(times),
                                                                      .clock = options.clock,
                                                                      .stop = options.stop});
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ComputeBackend> backend, CreateCpuBackend(config, options));
  if (!compute.has_pace()) return backend;
  ASSIGN_OR_RETURN(std::vector<LayerTime> times, TimesOf(config, compute.pace(), options.rank));
  return std::make_unique<PacedBackend>(
      std::move(backend), EmulatedDevice::Options{std::move(times), options.clock, options.stop});
}

}  // namespace evenshard
