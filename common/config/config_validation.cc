#include "common/config/config_validation.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/config/config_contract.h"
#include "common/config/parameter_encodings.h"
#include "common/config/shard_rates.h"
#include "common/config/text/config_text.h"

namespace evenshard {
namespace {

// A shard keeps a few words for every chunk and worker, and each worker opens connections to every
// shard. This bounds both.
constexpr int kMaxWorkers = 1024;
constexpr int kMaxShards = 1024;
constexpr int kMaxThreads = 1024;
constexpr int kMaxDevice = 1023;
constexpr int kMaxTimedEngines = 100;
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 40;
constexpr int kMaxConnections = 64;
constexpr int64_t kMinChunkBytes = 64;
constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;
constexpr int64_t kMinWindowBytes = int64_t{64} << 10;
constexpr int64_t kMaxWindowBytes = int64_t{1} << 30;

std::string Missing(const google::protobuf::Message& message, const std::string& field) {
  return absl::StrCat("is missing, allowed: ",
                      AllowedValues(*message.GetDescriptor()->FindFieldByName(field)));
}

void ValidateShards(const ClusterConfig& config, FieldProblems* problems) {
  if (config.shard().empty()) {
    problems->Add("shard", "is missing, allowed: at least one shard { address: \"host:port\" }");
  }
  if (config.shard_size() > kMaxShards) {
    problems->Add("shard", absl::StrCat("has ", config.shard_size(), " entries, allowed: at most ",
                                        kMaxShards));
  }
}

// Checks that addresses are valid, and that no two are the same.
void ValidateAddresses(const ClusterConfig& config, FieldProblems* problems) {
  std::map<std::string, std::string> taken;  // the field by the canonical address
  for (const AddressField& each : ListenAddresses(config)) {
    const std::optional<Address> address = ParseAddress(each.address);
    if (!address.has_value()) {
      problems->Add(each.field, absl::StrCat("is \"", absl::CEscape(each.address),
                                             "\", allowed: ", kAllowedAddresses));
      continue;
    }
    if (address->any_port) continue;
    const auto [first, is_new] = taken.emplace(address->canonical, each.field);
    if (!is_new) {
      problems->Add(each.field,
                    absl::StrCat("is \"", each.address, "\", the same as ", first->second,
                                 ", allowed: a different address for each ", each.each),
                    {first->second});
    }
  }
}

// Returns the indices of a shard with a rate and of one without, or nullopt if all have one or none
// has.
std::optional<std::pair<int, int>> RatedAndUnrated(const ClusterConfig& config) {
  int rated = -1;
  int unrated = -1;
  for (int i = config.shard_size() - 1; i >= 0; --i) {
    (ShardRate(config.shard(i)) > 0 ? rated : unrated) = i;
  }
  if (rated < 0 || unrated < 0) return std::nullopt;
  return std::pair(rated, unrated);
}

// A rate may be absent, which means that there is no limit, but not 0.
bool IsRate(bool is_set, double rate) { return !is_set || IsAboveZero(rate); }

void ValidateRates(const ClusterConfig& config, FieldProblems* problems) {
  const auto require = [problems](bool is_set, double rate, const std::string& field) {
    problems->Require(IsRate(is_set, rate), field, rate, kAboveZero);
  };
  for (int i = 0; i < config.shard_size(); ++i) {
    const ShardAddress& shard = config.shard(i);
    require(shard.has_link_gbps(), shard.link_gbps(), absl::StrCat("shard[", i, "].link_gbps"));
    require(shard.has_server_gbps(), shard.server_gbps(),
            absl::StrCat("shard[", i, "].server_gbps"));
  }
  require(config.has_worker_link_gbps(), config.worker_link_gbps(), "worker_link_gbps");
  if (const auto mixed = RatedAndUnrated(config)) {
    const std::string rated = absl::StrCat("shard[", mixed->first, "]");
    problems->Add(absl::StrCat("shard[", mixed->second, "]"),
                  absl::StrCat("has no rate and ", rated,
                               " has one, allowed: link_gbps or server_gbps for every shard, or "
                               "for none"),
                  {rated});
  }
}

void ValidateColocated(const ClusterConfig& config, FieldProblems* problems) {
  if (!config.colocated() || config.shard_size() <= config.workers()) return;
  problems->Add("colocated",
                absl::StrCat("is true with ", config.shard_size(), " shards and ", config.workers(),
                             " workers, allowed: at most as many shards as workers, since shard I "
                             "is on the host of worker I"),
                {"shard", "workers"});
}

void ValidateQuorum(const ClusterConfig& config, FieldProblems* problems) {
  const Update& update = config.update();
  const bool is_quorum = update.policy() == Update::QUORUM;
  const auto validate_use = [&](bool is_set, const char* field) {
    ValidateUse(is_set, is_quorum, field, "update.policy", Update::Policy_Name(update.policy()),
                "QUORUM", problems);
  };
  validate_use(update.has_quorum(), "update.quorum");
  validate_use(update.has_grace(), "update.grace");
  validate_use(update.late() != Update::DROP, "update.late");
  problems->Require(IsAtLeastZero(update.grace()), "update.grace", update.grace(), kAtLeastZero);
  if (!is_quorum) return;
  if (!update.has_quorum()) {
    problems->Add("update.quorum",
                  absl::StrCat("is missing with policy QUORUM, allowed: 1 to ", config.workers(),
                               ", how many workers' gradients an update needs (", config.workers(),
                               ", all of them, is SYNC)"),
                  {"update.policy", "workers"});
  } else {
    problems->Require(update.quorum() >= 1 && update.quorum() <= config.workers(), "update.quorum",
                      update.quorum(),
                      absl::StrCat("1 to ", config.workers(), ", the number of workers"),
                      {"workers"});
  }
  if (!config.model().has_from_workers() || update.quorum() == config.workers()) return;
  problems->Add("model.from_workers",
                "is set with policy QUORUM, under which a worker whose gradient is dropped goes on "
                "at a later iteration, as the `worker` program can and other programs cannot, "
                "allowed: with SYNC, SSP or ASYNC",
                {"update.policy", "update.quorum"});
}

void ValidateUpdate(const Update& update, FieldProblems* problems) {
  if (update.policy() == Update::POLICY_UNSPECIFIED) {
    problems->Add("update.policy", Missing(update, "policy"));
  }
  if (update.deterministic() && IsAsynchronous(update)) {
    problems->Add("update.deterministic",
                  absl::StrCat("is true with policy ", Update::Policy_Name(update.policy()),
                               ", allowed: only with SYNC and QUORUM"),
                  {"update.policy"});
  }
  const bool is_ssp = update.policy() == Update::SSP;
  if (is_ssp && !update.has_staleness()) {
    problems->Add("update.staleness",
                  "is missing with policy SSP, allowed: a number of at least 0, by how many "
                  "iterations a worker may be ahead of the slowest (0 is SYNC)",
                  {"update.policy"});
  }
  ValidateUse(update.has_staleness(), is_ssp, "update.staleness", "update.policy",
              Update::Policy_Name(update.policy()), "SSP", problems);
  if (update.has_asynchrony() && !IsAsynchronous(update)) {
    problems->Add("update.asynchrony",
                  absl::StrCat("has no effect with ", Update::Policy_Name(update.policy()),
                               ", allowed: only with ASYNC, and SSP with staleness above 0"),
                  {"update.policy"});
  }
  problems->Require(update.staleness() >= 0, "update.staleness", update.staleness(),
                    "at least 0 (0 is SYNC)");
  problems->Require(IsAtLeastZero(update.clip_value()), "update.clip_value", update.clip_value(),
                    kAtLeastZero);
  problems->Require(IsAtLeastZero(update.clip_global_norm()), "update.clip_global_norm",
                    update.clip_global_norm(), kAtLeastZero);
  const float max_norm = update.max_norm();
  problems->Require(max_norm == 0 || (IsAtLeastZero(max_norm) && max_norm >= 1), "update.max_norm",
                    max_norm,
                    "0 (no bound), or a number of at least 1, how many times the median of the "
                    "workers' norms a gradient may have");
}

// The settings of an emulated device, at `path`.
void ValidateDevice(const ClusterConfig& config, const Compute::Emulated& device,
                    const std::string& path, FieldProblems* problems) {
  const double dilation = device.time_dilation();
  problems->Require(IsAboveZero(dilation), path + ".time_dilation", dilation, kAboveZero);
  const auto& slowdown = device.worker_slowdown();
  for (int i = 0; i < slowdown.size(); ++i) {
    problems->Require(IsAboveZero(slowdown[i]), absl::StrCat(path, ".worker_slowdown[", i, "]"),
                      slowdown[i], kAboveZero);
  }
  if (slowdown.size() > std::max(config.workers(), 0)) {
    problems->Add(path + ".worker_slowdown",
                  absl::StrCat("has ", slowdown.size(), " entries, allowed: at most one for each ",
                               "of ", config.workers(), " workers"),
                  {"workers"});
  }
}

void ValidateEmulated(const ClusterConfig& config, FieldProblems* problems) {
  const Compute& compute = config.compute();
  const std::string backend = Compute::Backend_Name(compute.backend());
  ValidateUse(compute.has_emulated(), compute.backend() == Compute::EMULATED, "compute.emulated",
              "compute.backend", backend, "EMULATED", problems);
  ValidateDevice(config, compute.emulated(), "compute.emulated", problems);
  ValidateUse(compute.has_pace(), compute.backend() == Compute::CPU, "compute.pace",
              "compute.backend", backend, "CPU", problems);
  ValidateDevice(config, compute.pace(), "compute.pace", problems);
}

void ValidateCuda(const Compute& compute, FieldProblems* problems) {
  ValidateUse(compute.has_cuda(), compute.backend() == Compute::CUDA, "compute.cuda",
              "compute.backend", Compute::Backend_Name(compute.backend()), "CUDA", problems);
  const Compute::Cuda& cuda = compute.cuda();
  for (int i = 0; i < cuda.device_size(); ++i) {
    problems->RequireRange(absl::StrCat("compute.cuda.device[", i, "]"), cuda.device(i), 0,
                           kMaxDevice);
  }
  problems->RequireRange<int64_t>("compute.cuda.workspace_bytes", cuda.workspace_bytes(), 0,
                                  kMaxWorkspaceBytes);
  problems->RequireRange("compute.cuda.timed_engines", cuda.timed_engines(), 1, kMaxTimedEngines);
}

// With the other schedules, a layer's gradient is sent before the whole gradient is known.
void ValidateExchangeSchedule(const ClusterConfig& config, FieldProblems* problems) {
  const ExchangeConfig& exchange = config.exchange();
  if (exchange.schedule() == ExchangeConfig::SEQUENTIAL) return;
  const auto refuse = [&](bool is_set, const char* field, const char* what) {
    if (!is_set) return;
    problems->Add("exchange.schedule",
                  absl::StrCat("is ", ExchangeConfig::Schedule_Name(exchange.schedule()), " with ",
                               what, ", which needs the whole gradient before any of it leaves, ",
                               "allowed: SEQUENTIAL, or without ", field),
                  {field});
  };
  refuse(IsAsynchronous(config.update()) && config.update().clip_global_norm() != 0 &&
             !config.has_local(),
         "update.clip_global_norm", "update.clip_global_norm under ASYNC or SSP");
  refuse(config.update().non_finite() == Update::SKIP && !config.has_local(), "update.non_finite",
         "update.non_finite: SKIP");
}

void ValidateEncodings(const ExchangeConfig& exchange, FieldProblems* problems) {
  const std::string gradient = Encoding_Name(exchange.gradient_encoding());
  const std::string parameter = Encoding_Name(exchange.parameter_encoding());
  problems->Require(IsForParameters(exchange.parameter_encoding()), "exchange.parameter_encoding",
                    parameter,
                    "FLOAT32, FLOAT16, BFLOAT16, because the errors of parameters do not average "
                    "out as those of gradients do");
  const bool is_block_scaled = !IsForParameters(exchange.gradient_encoding());
  const auto validate_use = [&](bool is_set, const char* field) {
    ValidateUse(is_set, is_block_scaled, field, "exchange.gradient_encoding", gradient,
                "INT8, INT4, E3M0", problems);
  };
  validate_use(exchange.gradient_rounding() != ExchangeConfig::NEAREST,
               "exchange.gradient_rounding");
  validate_use(exchange.error_feedback(), "exchange.error_feedback");
}

void ValidateUpdateEncoding(const ClusterConfig& config, FieldProblems* problems) {
  const ExchangeConfig& exchange = config.exchange();
  if (!exchange.has_update_encoding()) return;
  problems->Require(!IsForParameters(exchange.update_encoding()), "exchange.update_encoding",
                    Encoding_Name(exchange.update_encoding()),
                    "INT8, INT4, E3M0; without it replies have parameters in "
                    "exchange.parameter_encoding");
  const auto refuse = [&](bool is_set, absl::string_view what, const char* field) {
    if (!is_set) return;
    problems->Add("exchange.update_encoding",
                  absl::StrCat("is ", Encoding_Name(exchange.update_encoding()), " ", what),
                  {field});
  };
  refuse(!IsSynchronous(config.update()),
         absl::StrCat("with policy ", Update::Policy_Name(config.update().policy()),
                      ", under which workers have other parameters than each other, allowed: with "
                      "SYNC, QUORUM"),
         "update.policy");
  refuse(exchange.parameter_encoding() != FLOAT32,
         absl::StrCat("with parameters in ", Encoding_Name(exchange.parameter_encoding()),
                      ", to which no update can be added, allowed: with FLOAT32"),
         "exchange.parameter_encoding");
  refuse(config.model().from_workers().tensor_size() > 0 && !config.has_local(),
         "with a model from workers, whose program may change its parameters, allowed: with local "
         "steps",
         "model.from_workers");
}

void ValidateStrangers(const Strangers& limits, FieldProblems* problems) {
  constexpr int kMost = 1'000'000;
  problems->RequireRange("limits.strangers.connections", limits.connections(), 1, kMost);
  problems->RequireRange("limits.strangers.handshakes", limits.handshakes(), 1, kMost);
  problems->RequireRange("limits.strangers.handshakes_per_second", limits.handshakes_per_second(),
                         1, kMost);
  ValidateTime("limits.strangers.handshake_seconds", limits.handshake_seconds(), problems);
  // A worker has several calls at a time on its connection for calls.
  problems->RequireRange("limits.strangers.streams", limits.streams(), 8, 1000);
  problems->RequireRange("limits.strangers.header_bytes", limits.header_bytes(), 1024, 1 << 20);
  problems->RequireRange("limits.strangers.readers", limits.readers(), 1, kMost);
  problems->RequireRange("limits.strangers.asking_burst_bytes", limits.asking_burst_bytes(),
                         1 << 14, 1 << 30);
  problems->RequireRange("limits.strangers.asking_bytes_per_second",
                         limits.asking_bytes_per_second(), 1 << 10, 1 << 30);
  ValidateTime("limits.strangers.shun_seconds", limits.shun_seconds(), problems);
  problems->RequireRange("limits.strangers.pulls", limits.pulls(), 1, kMost);
  problems->RequireRange("limits.strangers.snapshots", limits.snapshots(), 1, kMost);
  // Workers ping every 2 s at most, and shards every 20 s.
  problems->Require(limits.ping_seconds() > 0 && limits.ping_seconds() <= 1,
                    "limits.strangers.ping_seconds", limits.ping_seconds(),
                    "above 0 and at most 1");
  problems->RequireRange("limits.strangers.log_lines", limits.log_lines(), 0, kMost);
}

void ValidateLimits(const Limits& limits, FieldProblems* problems) {
  problems->Require(IsChunkBytesOrAbsent(limits), "limits.chunk_bytes", limits.chunk_bytes(),
                    absl::StrCat("a multiple of ", kMinChunkBytes, " from ", kMinChunkBytes, " to ",
                                 kMaxChunkBytes));
  problems->Require(limits.lead_bytes() >= 0, "limits.lead_bytes", limits.lead_bytes(),
                    "at least 0");
  problems->RequireRange("limits.connections", limits.connections(), 1, kMaxConnections);
  if (limits.has_window_bytes()) {
    problems->RequireRange("limits.window_bytes", limits.window_bytes(), kMinWindowBytes,
                           kMaxWindowBytes);
  }
  problems->Require(limits.model_bytes() > 0, "limits.model_bytes", limits.model_bytes(),
                    "at least 1");
  problems->Require(limits.snapshot_bytes() >= 0, "limits.snapshot_bytes", limits.snapshot_bytes(),
                    "at least 0");
  ValidateTime("limits.startup_seconds", limits.startup_seconds(), problems);
  ValidateTime("limits.exchange_seconds", limits.exchange_seconds(), problems);
  ValidateTime("limits.shutdown_seconds", limits.shutdown_seconds(), problems);
  ValidateStrangers(limits.strangers(), problems);
  const double reconnect = limits.reconnect_seconds();
  problems->Require(reconnect >= 0 && reconnect <= kMaxSeconds, "limits.reconnect_seconds",
                    reconnect, absl::StrCat("0 to ", kMaxSeconds, " seconds"));
}

}  // namespace

void ValidateUse(bool is_set, bool is_used, const std::string& field, absl::string_view kind_field,
                 const std::string& kind, absl::string_view used_by, FieldProblems* problems) {
  if (is_set && !is_used) {
    problems->Add(field,
                  absl::StrCat("has no effect with ", kind, ", allowed: only with ", used_by),
                  {kind_field});
  }
}

void ValidateTime(const char* field, double seconds, FieldProblems* problems) {
  problems->Require(seconds > 0 && seconds <= kMaxSeconds, field, seconds,
                    absl::StrCat("above 0 and at most ", kMaxSeconds, " seconds"));
}

bool AreShardRates(const ClusterConfig& config) {
  return !RatedAndUnrated(config) &&
         std::all_of(config.shard().begin(), config.shard().end(), [](const ShardAddress& shard) {
           return IsRate(shard.has_link_gbps(), shard.link_gbps()) &&
                  IsRate(shard.has_server_gbps(), shard.server_gbps());
         });
}

bool IsChunkBytesOrAbsent(const Limits& limits) {
  const int64_t bytes = limits.chunk_bytes();
  if (!limits.has_chunk_bytes()) return true;
  return bytes >= kMinChunkBytes && bytes <= kMaxChunkBytes && bytes % kMinChunkBytes == 0;
}

void ValidateHeldBytes(const Limits& limits, FieldProblems* problems) {
  problems->Require(
      limits.held_bytes() >= limits.chunk_bytes(), "limits.held_bytes", limits.held_bytes(),
      absl::StrCat("at least limits.chunk_bytes, ", limits.chunk_bytes()), {"limits.chunk_bytes"});
}

void ValidateFields(const ClusterConfig& config, FieldProblems* problems) {
  if (config.topology() == ClusterConfig::PARAMETER_SERVER) {
    if (config.partition().scheme() == Partition::SCHEME_UNSPECIFIED) {
      problems->Add("partition.scheme", Missing(config.partition(), "scheme"));
    }
    ValidateShards(config, problems);
  }
  ValidateRing(config, problems);
  ValidateAddresses(config, problems);
  ValidateRates(config, problems);
  ValidateColocated(config, problems);
  problems->RequireRange("workers", config.workers(), 1, kMaxWorkers);
  ValidateUpdate(config.update(), problems);
  ValidateQuorum(config, problems);
  ValidateOptimizer(config, problems);
  if (config.model().has_from_workers()) {
    ValidateFromWorkers(config, problems);
  } else {
    ValidateTraining(config, problems);
    ValidateData(config, problems);
    problems->RequireRange("compute.threads", config.compute().threads(), 0, kMaxThreads);
    ValidateEmulated(config, problems);
    ValidateCuda(config.compute(), problems);
  }
  ValidateExchangeSchedule(config, problems);
  ValidateEncodings(config.exchange(), problems);
  ValidateUpdateEncoding(config, problems);
  ValidateLimits(config.limits(), problems);
  ValidateInitialParameters(config.model(), problems);
  ValidateRecovery(config, problems);
  ValidateSecurity(config, problems);
}

}  // namespace evenshard
