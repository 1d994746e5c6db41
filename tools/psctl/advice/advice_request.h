#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_REQUEST_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_REQUEST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"

namespace evenshard {

// The flags of psctl advise that describe a cluster. Numbers are as they were typed; what is empty
// was not given.
struct AdviceRequest {
  std::string config = {};                  // a file; this or `model`
  std::vector<std::string> overrides = {};  // "FIELD=VALUE", of the file
  std::string model = {};                   // the name of a built-in one
  std::string workers = {};
  std::string device = {};
  std::string batch = {};
  std::string server_hosts = {};
  std::optional<double> link_gbps = {};
  std::optional<double> latency_us = {};  // at least 0
};

// A cluster to advise on.
struct AdviceCluster {
  std::string name;  // of the file, or of the model
  bool has_file = false;
  // The run as it is described: workers, links, device, batch, optimizer, data. A cluster without a
  // file has the partition STRIPED, with one shard beside worker 0.
  ClusterConfig config = {};
  // The hosts for shards beside the workers'. The first ones are those of the config's shards.
  int server_hosts = 0;
  double latency_seconds = 0;  // of a message (ClusterRates)
};

// Reads what the flags describe. `server_hosts` is by default the number of the file's shards,
// unless they are on the workers' hosts, and without a file the number of workers; `latency_us` is
// 100. Errors: INVALID_ARGUMENT, which names the flag or the field, for what is out of range or
// missing, for a model that workers bring, and if it is not known how long layers take; those of
// PlannedConfig::Load.
absl::StatusOr<AdviceCluster> ReadRequest(const AdviceRequest& request);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_REQUEST_H_
