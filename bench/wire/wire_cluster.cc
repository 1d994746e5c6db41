#include "bench/wire/wire_cluster.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/placement/planned_config.h"

namespace evenshard {
namespace {

// Parses an answer that must consist of `count` numbers.
absl::StatusOr<std::vector<double>> Numbers(absl::StatusOr<std::vector<std::string>> answer,
                                            size_t count) {
  ASSIGN_OR_RETURN(const std::vector<std::string> words, std::move(answer));
  std::vector<double> numbers(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    if (words.size() != count || !absl::SimpleAtod(words[i], &numbers[i])) {
      return absl::InternalError(absl::StrCat("an answer of ", absl::StrJoin(words, " "), " where ",
                                              count, " numbers were expected"));
    }
  }
  return numbers;
}

}  // namespace

std::string WireConfig(const WireLayout& layout, const std::string& folder) {
  std::string text = absl::StrCat(
      "model { ", layout.model, " } partition { scheme: MEMORY_BASED } workers: ", layout.workers,
      " update { policy: SYNC } optimizer { kind: SGD learning_rate: 0.01 }"
      " training { iterations: 1 } compute { backend: EMULATED }");
  for (int shard = 0; shard < layout.shards; ++shard) {
    const std::string address =
        layout.transport == "unix"
            ? absl::StrCat("unix:", folder, "/", layout.system, shard, ".sock")
            : "127.0.0.1:0";
    absl::StrAppend(&text, " shard { address: \"", address, "\" }");
  }
  const std::string& encoding = Encoding_Name(layout.encoding);
  return absl::StrCat(
      text, " exchange { gradient_encoding: ", encoding, " parameter_encoding: ", encoding,
      " shared_memory: ",
      layout.transport == "shared" && layout.system != kRawSystem ? "true" : "false",
      " } limits { ", absl::StrJoin(layout.limits, " "), " }");
}

absl::StatusOr<std::unique_ptr<WireCluster>> WireCluster::Start(const WireLayout& layout,
                                                                const std::string& folder,
                                                                const Interrupts* interrupts) {
  std::unique_ptr<WireCluster> cluster(new WireCluster(layout));
  cluster->config_ = WireConfig(layout, folder);
  ASSIGN_OR_RETURN(const PlannedConfig config, PlannedConfig::Parse(cluster->config_, "bench"));
  cluster->buffers_bytes_ = 2 * config.model().buffer_size() * static_cast<int64_t>(sizeof(float));

  for (int shard = 0; shard < layout.shards; ++shard) {
    ASSIGN_OR_RETURN(auto started, cluster->StartProcess("shard", shard, {}, interrupts));
    cluster->shards_.push_back(std::move(started));
  }
  std::vector<std::string> addresses;
  for (const auto& shard : cluster->shards_) {
    ASSIGN_OR_RETURN(const std::vector<std::string> words, shard->Expect("listening"));
    addresses.push_back(absl::StrJoin(words, " "));
  }
  const std::string all_addresses = absl::StrCat("--addresses=", absl::StrJoin(addresses, ","));
  for (int rank = 0; rank < layout.workers; ++rank) {
    ASSIGN_OR_RETURN(auto started,
                     cluster->StartProcess("worker", rank, {all_addresses}, interrupts));
    cluster->workers_.push_back(std::move(started));
  }
  for (const auto& worker : cluster->workers_) {
    ASSIGN_OR_RETURN(const std::vector<double> resident, Numbers(worker->Expect("ready"), 1));
    cluster->resident_before_.push_back(static_cast<int64_t>(resident[0]));
  }
  return cluster;
}

absl::StatusOr<std::unique_ptr<WireProcess>> WireCluster::StartProcess(
    const std::string& role, int index, const std::vector<std::string>& more,
    const Interrupts* interrupts) const {
  std::vector<std::string> arguments = {
      absl::StrCat("--role=", role),
      absl::StrCat("--index=", index),
      absl::StrCat("--system=", layout_.system),
      absl::StrCat("--socket-buffer=", layout_.socket_buffer_bytes),
      absl::StrCat("--config=", config_),
      absl::StrCat("--log_level=", layout_.log_level),
  };
  arguments.insert(arguments.end(), more.begin(), more.end());
  return WireProcess::Start(absl::StrCat(role, " ", index, " of ", layout_.system), arguments,
                            interrupts);
}

absl::StatusOr<double> WireCluster::CpuSeconds() const {
  absl::Duration total;
  for (const auto* processes : {&shards_, &workers_}) {
    for (const auto& process : *processes) {
      ASSIGN_OR_RETURN(const absl::Duration time, process->CpuTime());
      total += time;
    }
  }
  return absl::ToDoubleSeconds(total);
}

absl::StatusOr<WireWindow> WireCluster::Run(int iterations) {
  ASSIGN_OR_RETURN(const double cpu_before, CpuSeconds());
  for (const auto& worker : workers_) {
    RETURN_IF_ERROR(worker->Send(absl::StrCat("run ", iterations)));
  }
  double start = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const auto& worker : workers_) {
    ASSIGN_OR_RETURN(const std::vector<double> times, Numbers(worker->Expect("ran"), 2));
    start = std::min(start, times[0]);
    end = std::max(end, times[1]);
  }
  ASSIGN_OR_RETURN(const double cpu_after, CpuSeconds());
  return WireWindow{(end - start) * 1e-9, cpu_after - cpu_before};
}

absl::Status WireCluster::Verify() {
  for (const auto& worker : workers_) {
    RETURN_IF_ERROR(worker->Send("verify"));
  }
  for (const auto& worker : workers_) {
    RETURN_IF_ERROR(worker->Expect("verified").status());
  }
  return absl::OkStatus();
}

absl::StatusOr<WireLatency> WireCluster::MeasureLatency(int count) {
  RETURN_IF_ERROR(workers_[0]->Send(absl::StrCat("latency ", count)));
  ASSIGN_OR_RETURN(const std::vector<double> ns, Numbers(workers_[0]->Expect("latency"), 4));
  return WireLatency{ns[0] * 1e-9, ns[1] * 1e-9, ns[2] * 1e-9, ns[3] * 1e-9};
}

absl::StatusOr<WireMemory> WireCluster::Memory() const {
  WireMemory memory;
  for (const auto& shard : shards_) {
    ASSIGN_OR_RETURN(const int64_t resident, shard->Resident());
    memory.shard = std::max(memory.shard, resident);
  }
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    ASSIGN_OR_RETURN(const int64_t resident, workers_[rank]->Resident());
    memory.worker = std::max(memory.worker, resident - buffers_bytes_);
    memory.exchange = std::max(memory.exchange, resident - resident_before_[rank]);
  }
  return memory;
}

}  // namespace evenshard
