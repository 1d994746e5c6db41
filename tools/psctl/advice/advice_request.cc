#include "tools/psctl/advice/advice_request.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"

namespace evenshard {
namespace {

constexpr double kDefaultLatencySeconds = 100e-6;
constexpr int kDefaultWorkers = 4;
constexpr int kMostMachines = 1024;
constexpr int kMostImages = 65536;
constexpr double kLeastGbps = 0.001;  // below which iterations take days

// Returns the number of a flag, or `otherwise` if it was not given.
absl::StatusOr<int> NumberOf(const char* flag, const std::string& text, int least, int most,
                             int otherwise) {
  if (text.empty()) return otherwise;
  int number;
  if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) return number;
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": is \"", absl::CEscape(text),
                                                 "\", allowed: ", least, " to ", most));
}

// A run of a built-in model of which nothing else is known.
ClusterConfig ConfigOfModel(const std::string& model, int workers) {
  ClusterConfig config;
  config.mutable_model()->set_builtin(model);
  config.mutable_partition()->set_scheme(Partition::STRIPED);
  config.add_shard()->set_address("127.0.0.1:50051");
  config.set_colocated(true);
  config.set_workers(workers);
  config.mutable_update()->set_policy(Update::SYNC);
  config.mutable_training()->set_iterations(10);
  config.mutable_compute()->set_backend(Compute::EMULATED);
  return config;
}

void SetDevice(const std::string& device, Compute* compute) {
  if (compute->has_pace()) {
    compute->mutable_pace()->set_device(device);
  } else if (compute->backend() == Compute::EMULATED) {
    compute->mutable_emulated()->set_device(device);
  } else {
    compute->set_profile(device);
  }
}

void SetLinks(double gbps, ClusterConfig* config) {
  config->set_worker_link_gbps(gbps);
  for (ShardAddress& shard : *config->mutable_shard()) shard.set_link_gbps(gbps);
}

void SetWorkers(int workers, ClusterConfig* config) {
  config->set_workers(workers);
  // Each of these shards has a worker on its host.
  if (const int more = config->shard_size() - workers; config->colocated() && more > 0) {
    config->mutable_shard()->DeleteSubrange(workers, more);
  }
  Compute::Emulated* device = MutableEmulatedDeviceOf(config->mutable_compute());
  if (device != nullptr && device->worker_slowdown_size() > workers) {
    device->mutable_worker_slowdown()->Truncate(workers);
  }
}

// Refuses a device that is not known, and a cluster that computes nothing.
absl::Status CheckDevice(const AdviceRequest& request, const PlannedConfig& checked,
                         const ClusterConfig& config) {
  const absl::StatusOr<std::vector<LayerTime>> times = PredictedLayerTimes(checked.model(), config);
  if (!times.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: is \"", absl::CEscape(request.device),
                     "\", allowed: ", KnownDevices(/*with_none=*/false)));
  }
  const bool computes = std::any_of(times->begin(), times->end(),
                                    [](const LayerTime& time) { return time.forward_seconds > 0; });
  if (computes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--device: ", request.device.empty() ? "is missing" : "is \"none\"",
                   ", and without the times of layers nobody can tell whether links matter: ",
                   NoComputeReason(config), ", allowed: ", KnownDevices(/*with_none=*/false)));
}

}  // namespace

absl::StatusOr<AdviceCluster> ReadRequest(const AdviceRequest& request) {
  if (request.config.empty() == request.model.empty()) {
    return absl::InvalidArgumentError(
        "psctl advise: has neither or both of --config and --model, allowed: one of the two");
  }
  if (!request.overrides.empty() && request.config.empty()) {
    return absl::InvalidArgumentError("--set: has no effect with --model, allowed: with --config");
  }
  if (request.link_gbps && *request.link_gbps < kLeastGbps) {
    return absl::InvalidArgumentError(
        absl::StrCat("--link_gbps: is ", *request.link_gbps, ", allowed: at least ", kLeastGbps));
  }
  AdviceCluster cluster = {.name = request.config.empty() ? request.model : request.config,
                           .has_file = !request.config.empty()};
  cluster.latency_seconds =
      request.latency_us ? *request.latency_us * 1e-6 : kDefaultLatencySeconds;
  if (cluster.has_file) {
    RETURN_IF_ERROR(CheckReadableAgain(
        request.config, "the cluster and the model are taken from it one after the other"));
    ASSIGN_OR_RETURN(const Config file, Config::Load(request.config, request.overrides));
    RETURN_IF_ERROR(file.CheckOwnModel());
    cluster.config = file.proto();
  } else {
    cluster.config = ConfigOfModel(request.model, kDefaultWorkers);
  }
  // The model, which Config does not look at.
  const absl::StatusOr<PlannedConfig> checked =
      cluster.has_file
          ? PlannedConfig::Load(request.config, request.overrides)
          : PlannedConfig::Parse(cluster.config.DebugString(), "--model=" + request.model);
  RETURN_IF_ERROR(checked.status());

  ASSIGN_OR_RETURN(const int workers, NumberOf("workers", request.workers, 1, kMostMachines,
                                               cluster.config.workers()));
  ASSIGN_OR_RETURN(const int batch, NumberOf("batch", request.batch, 1, kMostImages,
                                             cluster.config.training().batch_size()));
  SetWorkers(workers, &cluster.config);
  cluster.config.mutable_training()->set_batch_size(batch);
  if (request.link_gbps) SetLinks(*request.link_gbps, &cluster.config);
  if (!request.device.empty()) SetDevice(request.device, cluster.config.mutable_compute());
  RETURN_IF_ERROR(CheckDevice(request, *checked, cluster.config));
  int hosts = cluster.has_file ? cluster.config.shard_size() : workers;
  if (cluster.has_file && cluster.config.colocated()) hosts = 0;
  ASSIGN_OR_RETURN(cluster.server_hosts,
                   NumberOf("server_hosts", request.server_hosts, 0, kMostMachines, hosts));
  return cluster;
}

}  // namespace evenshard
