#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/config/config_contract.h"
#include "common/config/config_validation.h"
#include "common/config/optimizer_arrays.h"
#include "common/security/identity.h"

namespace evenshard {
namespace {

// What comes with a chunk's state: numbers of each worker.
constexpr int64_t kStateHeaderBytes = 1024 * 1024;

void ValidateCheckpoint(const ClusterConfig& config, FieldProblems* problems) {
  const Recovery::Checkpoint& checkpoint = config.recovery().checkpoint();
  if (checkpoint.folder().empty()) {
    problems->Add("recovery.checkpoint.folder",
                  "is missing, allowed: a path, relative to this file, that every ps can reach");
  }
  switch (checkpoint.interval_case()) {
    case Recovery::Checkpoint::kEveryIterations:
      problems->Require(checkpoint.every_iterations() >= 1, "recovery.checkpoint.every_iterations",
                        checkpoint.every_iterations(), "at least 1");
      // Each worker has iterations of its own.
      if (IsAsynchronous(config.update())) {
        problems->Add("recovery.checkpoint.every_iterations",
                      absl::StrCat("is set with update.policy ",
                                   Update::Policy_Name(config.update().policy()),
                                   ", under which the run as a whole has no iterations, allowed: "
                                   "recovery.checkpoint.every_seconds in its place"),
                      {"update.policy"});
      }
      break;
    case Recovery::Checkpoint::kEverySeconds:
      ValidateTime("recovery.checkpoint.every_seconds", checkpoint.every_seconds(), problems);
      break;
    case Recovery::Checkpoint::INTERVAL_NOT_SET:
      problems->Add("recovery.checkpoint",
                    "has neither every_iterations nor every_seconds, allowed: one of the two");
  }
  problems->Require(checkpoint.keep() >= 2, "recovery.checkpoint.keep", checkpoint.keep(),
                    "at least 2, since a run may be going back to the one before the newest");
}

void ValidateReplicas(const ClusterConfig& config, FieldProblems* problems) {
  const Recovery& recovery = config.recovery();
  problems->RequireRange("recovery.replicas", recovery.replicas(), 0, 1);
  const int processes = config.shard_size() + recovery.spare_size();
  // What a ring is refused for is said with the rest of what a ring cannot be.
  if (recovery.replicas() == 1 && processes < 2 && config.topology() != ClusterConfig::RING) {
    problems->Add("recovery.replicas",
                  "is 1, but there is only one ps, which cannot hold its own replica, "
                  "allowed: 0, or another shard or recovery.spare",
                  {"shard", "recovery.spare"});
  }
  for (int i = 0; i < recovery.spare_size(); ++i) {
    const ShardAddress& spare = recovery.spare(i);
    if (!spare.has_link_gbps() && !spare.has_server_gbps()) continue;
    problems->Add(absl::StrCat("recovery.spare[", i, "]"),
                  "has a rate, which would have no effect, allowed: only address");
  }
}

void ValidateWorkerLoss(const ClusterConfig& config, FieldProblems* problems) {
  const Recovery& recovery = config.recovery();
  const bool goes_on = recovery.worker_loss() == Recovery::CONTINUE;
  ValidateUse(recovery.has_min_workers(), goes_on, "recovery.min_workers", "recovery.worker_loss",
              Recovery::WorkerLoss_Name(recovery.worker_loss()), "CONTINUE", problems);
  problems->Require(
      recovery.min_workers() >= 1 && recovery.min_workers() <= std::max(config.workers(), 1),
      "recovery.min_workers", recovery.min_workers(),
      absl::StrCat("1 to the number of workers, ", config.workers()), {"workers"});
}

void ValidateEtcd(const ClusterConfig& config, FieldProblems* problems) {
  const Recovery::Etcd& etcd = config.recovery().etcd();
  if (etcd.endpoint().empty()) {
    problems->Add("recovery.etcd.endpoint", "is missing, allowed: at least one \"host:port\"");
  }
  for (int i = 0; i < etcd.endpoint_size(); ++i) {
    const std::optional<Address> address = ParseAddress(etcd.endpoint(i));
    if (address.has_value() && !address->any_port && !absl::StartsWith(etcd.endpoint(i), "unix:")) {
      continue;
    }
    problems->Add(absl::StrCat("recovery.etcd.endpoint[", i, "]"),
                  absl::StrCat("is \"", absl::CEscape(etcd.endpoint(i)),
                               "\", allowed: host:port or [IPv6]:port with a port of 1 to 65535"));
  }
  problems->Require(IsRunName(etcd.run()), "recovery.etcd.run",
                    absl::StrCat("\"", absl::CEscape(etcd.run()), "\""), kAllowedRunNames);
  if (config.exchange().has_shared_memory() && config.exchange().shared_memory()) {
    problems->Add("exchange.shared_memory",
                  "is true with recovery.etcd, where a shard that lost its role unawares could "
                  "still write to its workers' memory, allowed: false, the default with it",
                  {"recovery.etcd"});
  }
}

}  // namespace

void ValidateRecovery(const ClusterConfig& config, FieldProblems* problems) {
  if (!config.has_recovery()) return;
  if (config.recovery().has_checkpoint()) ValidateCheckpoint(config, problems);
  ValidateReplicas(config, problems);
  ValidateWorkerLoss(config, problems);
  ValidateTime("recovery.silence_seconds", config.recovery().silence_seconds(), problems);
  if (config.recovery().has_etcd()) ValidateEtcd(config, problems);
}

void ValidateChunkState(const ClusterConfig& config, FieldProblems* problems) {
  const int64_t chunk = config.limits().chunk_bytes();
  const int64_t arrays = 1 + StateArrays(config);
  if (config.recovery().has_checkpoint()) {
    const int64_t bytes = config.recovery().checkpoint().buffer_bytes();
    problems->Require(bytes >= chunk * arrays, "recovery.checkpoint.buffer_bytes", bytes,
                      absl::StrCat("at least a chunk with its optimizer state, ", chunk * arrays),
                      {"limits.chunk_bytes", "optimizer"});
  }
  if (config.recovery().replicas() > 0) {
    // A replica is filled by a message for each chunk, and gRPC has none that is longer.
    constexpr int64_t kLongest = std::numeric_limits<int>::max() - kStateHeaderBytes;
    const int64_t in_message = arrays + SentArrays(config);
    problems->Require(chunk * in_message <= kLongest, "limits.chunk_bytes", chunk,
                      absl::StrCat("at most ", kLongest / in_message, " with recovery.replicas: a ",
                                   "chunk has ", in_message, " arrays with its optimizer state"),
                      {"recovery.replicas", "optimizer"});
  }
}

}  // namespace evenshard
