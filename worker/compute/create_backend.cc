#include "worker/compute/create_backend.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/placement/device_profile.h"
#include "worker/compute/cpu/backend.h"
#include "worker/compute/create_cuda_backend.h"
#include "worker/compute/emulated_backend.h"
#include "worker/compute/processor_share.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateComputeBackend(
    const PlannedConfig& config, const BackendOptions& options) {
  const ClusterConfig& proto = config.proto();
  if (proto.compute().backend() == Compute::CUDA) return CreateCudaBackend(config, options);
  if (proto.compute().backend() == Compute::EMULATED) {
    ASSIGN_OR_RETURN(
        std::vector<LayerTime> times,
        LayerTimes(config.model(), proto.compute().emulated(), proto.training().batch_size()));
    const double slowdown = WorkerSlowdown(proto.compute().emulated(), options.rank);
    for (LayerTime& time : times) {
      time.forward_seconds *= slowdown;
      time.backward_seconds *= slowdown;
    }
    return std::make_unique<EmulatedBackend>(config.model(),
                                             EmulatedBackend::Options{.rank = options.rank,
                                                                      .times = std::move(times),
                                                                      .clock = options.clock,
                                                                      .stop = options.stop});
  }
  CpuBackend::Options cpu;
  cpu.batch_size = proto.training().batch_size();
  cpu.threads = proto.compute().threads();
  if (cpu.threads == 0) cpu.threads = ProcessorShare(config.workers());
  cpu.seed = proto.training().seed();
  cpu.rank = options.rank;
  return CpuBackend::Create(config.model(), cpu);
}

}  // namespace evenshard
