// libFuzzer target: what the tools of operators and readers are told by the processes of a run:
// statistics, views, the model that workers have brought, and chunks of a snapshot. Each is
// sensible but for a few fields. What is printed has nothing that a terminal would act on.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/net/pulled_chunks.h"
#include "common/placement/planned_config.h"
#include "common/reader/process_calls.h"
#include "nlohmann/json.hpp"
#include "proto/admin.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/view.pb.h"
#include "tests/fuzz/fuzzing.h"
#include "tools/psctl/report/stats_report.h"
#include "tools/psctl/report/view_report.h"

namespace evenshard {
namespace {

constexpr int kShards = 2;
constexpr int kChanges = 3;

constexpr char kTensors[] =
    "tensor { name: 'a' shape: [9, 4] layer: 'a' } tensor { name: 'b' shape: 7 layer: 'b' }";

PlannedConfig MakeConfig(const char* tensors) {
  auto config = PlannedConfig::Parse(absl::StrCat("model { from_workers { ", tensors, " } } ", R"(
        partition { scheme: STRIPED } shard { address: "a:1" } shard { address: "b:2" } workers: 2
        update { policy: SYNC } recovery { replicas: 1 worker_loss: WAIT }
        limits { chunk_bytes: 64 })"),
                                     "fuzzed.textproto", {});
  Require(config.ok(), config.status().message());
  return *std::move(config);
}

const PlannedConfig& TheConfig() {
  static const auto* const config = new PlannedConfig(MakeConfig(kTensors));
  return *config;
}

// A reader's, who learns the model from the run.
const PlannedConfig& WithoutModel() {
  static const auto* const config = new PlannedConfig(MakeConfig(/*tensors=*/""));
  return *config;
}

void RequirePrintable(absl::string_view text, absl::string_view what) {
  Require(std::all_of(text.begin(), text.end(),
                      [](char c) { return absl::ascii_isprint(c) || c == '\n'; }),
          what);
}

void RequireJson(const std::string& text) {
  RequirePrintable(text, "JSON is plain text");
  Require(!nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false).is_discarded(),
          "JSON can be read");
}

// ASCII, since a message with a string that is not UTF-8 is none.
std::string AnyText(FuzzedDataProvider& input) {
  std::string text = input.ConsumeRandomLengthString(20);
  for (char& c : text) c = static_cast<char>(c & 0x7f);
  return text;
}

// A status as FromGrpc makes it, whose message is printable.
absl::Status AnyError(FuzzedDataProvider& input) {
  return absl::Status(static_cast<absl::StatusCode>(input.ConsumeIntegralInRange(1, 16)),
                      "it does not answer");
}

ShardStats AnyStats(FuzzedDataProvider& input, int shard) {
  ShardStats stats;
  stats.set_shard(shard);
  stats.set_incarnation(7);
  stats.set_failure(AnyText(input));
  stats.set_uptime_seconds(100);
  stats.set_parameters(1000);
  stats.set_updates(10);
  StalenessBucket& staleness = *stats.add_staleness();
  staleness.set_to(1);
  staleness.set_pushes(3);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    WorkerStats& worker = *stats.add_worker();
    worker.set_worker(rank);
    worker.set_state(WorkerStats::JOINED);
    worker.set_address(AnyText(input));
    worker.mutable_usage()->set_device(AnyText(input));
    worker.mutable_usage()->set_pci_bus_id(AnyText(input));
  }
  stats.mutable_recovery()->set_last_checkpoint_failure(AnyText(input));
  stats.mutable_wait()->add_worker(1);
  stats.mutable_quorum()->add_worker(1);
  stats.mutable_connections()->set_turned_away(1);
  Vary(input, kChanges, &stats);
  return stats;
}

ClusterReport AnyReport(FuzzedDataProvider& input,
                        const std::vector<absl::StatusOr<std::string>>& primaries) {
  ClusterReport report;
  report.time = absl::FromUnixSeconds(input.ConsumeIntegral<uint16_t>());
  for (int shard = 0; shard < kShards; ++shard) {
    report.shards.push_back({primaries[shard].value_or(""), AnyError(input)});
    if (input.ConsumeIntegralInRange(0, 7) > 0) report.shards[shard].stats = AnyStats(input, shard);
  }
  return report;
}

View AnyView(FuzzedDataProvider& input, uint64_t number) {
  View view;
  view.set_number(number);
  view.set_generation(1);
  view.set_checkpoint(AnyText(input));
  view.add_worker_set()->add_rank(0);
  for (uint32_t i = 0; i < kShards; ++i) {
    view.add_worker()->set_state(WorkerView::MEMBER);
    ProcessId& primary = *view.add_slot()->mutable_primary();
    primary.set_process(i);
    primary.set_address(AnyText(input));
    *view.mutable_slot(static_cast<int>(i))->mutable_replica() = primary;
  }
  view.set_events(1);
  view.add_event()->set_what(AnyText(input));
  Vary(input, kChanges, &view);
  return view;
}

void ReadReports(FuzzedDataProvider& input) {
  const PlannedConfig& config = TheConfig();
  ViewReport views;
  for (int process = 0; process < kShards; ++process) {
    views.emplace_back(AnyError(input));
    if (input.ConsumeIntegralInRange(0, 7) > 0) views.back() = AnyView(input, 3 + process);
  }
  const bool wants_json = input.ConsumeBool();
  if (wants_json) {
    RequireJson(ViewJson(views));
  } else {
    RequirePrintable(ViewText(views), "a report of views is plain text");
  }

  const auto primaries = PrimariesIn(config, views);
  Require(primaries.size() == kShards, "each slot has a primary, or none");
  const ClusterReport earlier = AnyReport(input, primaries);
  ClusterReport report = AnyReport(input, primaries);
  report.time += absl::Seconds(100'000);
  if (wants_json) {
    RequireJson(StatsJson(report));
  } else {
    RequirePrintable(StatsText(report, input.ConsumeBool() ? &earlier : nullptr),
                     "a report of statistics is plain text");
  }
}

void ReadModel(FuzzedDataProvider& input) {
  Declaration declaration = TheConfig().declaration();
  Vary(input, kChanges, &declaration);
  const auto declared = (input.ConsumeBool() ? TheConfig() : WithoutModel()).Declared(declaration);
  RequirePrintable(declared.status().message(), "the model's fault is plain text");
}

void ReadSnapshot(FuzzedDataProvider& input) {
  const PlannedConfig& config = TheConfig();
  for (int shard = 0; shard < kShards; ++shard) {
    PulledChunks pulled(&config.plan(), shard, {.iteration = 5, .may_lack_data = shard == 1});
    size_t count = 0;
    absl::Status status;
    for (const uint32_t id : config.plan().chunks_of_shard(shard)) {
      ParameterChunk message;
      message.set_chunk(id);
      message.set_iteration(5);
      message.set_data(std::string(config.plan().chunks()[id].size * sizeof(float), '\0'));
      Vary(input, input.ConsumeIntegralInRange(0, 7) == 0 ? 3 : 0, &message);
      status = pulled.Add(message);
      if (!status.ok()) break;
      const Chunk& chunk = config.plan().chunks()[message.chunk()];
      Require(chunk.shard == shard && message.iteration() == 5, "a chunk that was asked for");
      Require(message.data().size() == chunk.size * sizeof(float) ||
                  (shard == 1 && message.data().empty()),
              "a chunk has its size");
      ++count;
    }
    if (status.ok()) status = pulled.CheckEnd();
    RequirePrintable(status.message(), "a snapshot's fault is plain text");
    Require(!status.ok() || count == config.plan().chunks_of_shard(shard).size(),
            "each chunk has come once");
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider input(bytes, size);
  switch (input.ConsumeIntegralInRange(0, 15)) {
    case 0:
      evenshard::ReadModel(input);
      break;
    case 1:
    case 2:
    case 3:
      evenshard::ReadSnapshot(input);
      break;
    default:
      evenshard::ReadReports(input);
  }
  return 0;
}
