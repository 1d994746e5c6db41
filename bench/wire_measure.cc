#include "bench/wire_measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/quantile.h"
#include "common/config.h"
#include "common/encoding.h"

namespace ps {
namespace {

// The kernel's and the program's share of a process, for the estimate of memory: what was
// seen at most, and room for socket buffers.
constexpr int64_t kProcessBytes = 256 << 20;

// MemAvailable, of /proc/meminfo.
int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  std::string rest;
  while (file >> name >> kilobytes && std::getline(file, rest)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return 0;
}

class Measurement {
 public:
  Measurement(const WireOptions& options, const std::string& folder, const Interrupts* interrupts)
      : options_(options), folder_(folder), interrupts_(interrupts) {}

  absl::StatusOr<WireResults> Run() {
    for (const std::string& transport : options_.transports) {
      absl::StatusOr<RawCandidate> best = FindRawBest(transport);
      if (!best.ok()) return best.status();
      for (const int workers : options_.workers) {
        for (const int shards : options_.shards) {
          WireLayout layout = ModelLayout(transport);
          layout.workers = workers;
          layout.shards = shards;
          absl::StatusOr<GoodputResult> result = MeasureGoodput(layout, *best);
          if (!result.ok()) return result.status();
          results_.goodput.push_back(*std::move(result));
        }
      }
    }
    for (const std::string& transport : options_.transports) {
      for (const int64_t width : {16, 128, 512}) {
        if (absl::Status status = MeasureLatency(transport, width); !status.ok()) return status;
      }
    }
    return std::move(results_);
  }

 private:
  // A running cluster and how many iterations fill a window of it.
  struct Measured {
    std::unique_ptr<WireCluster> cluster;
    int iterations = 1;
  };

  // One worker and one shard.
  WireLayout ModelLayout(const std::string& transport) const {
    WireLayout layout;
    layout.model = absl::StrCat("builtin: \"", options_.model, "\"");
    layout.transport = transport;
    return layout;
  }

  static void Tell(const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); }

  // Starts the cluster, runs the iterations that are not counted, and verifies them.
  absl::StatusOr<Measured> Prepare(const WireLayout& layout) {
    Measured measured;
    absl::StatusOr<std::unique_ptr<WireCluster>> started =
        WireCluster::Start(layout, folder_, interrupts_);
    if (!started.ok()) return started.status();
    measured.cluster = *std::move(started);
    absl::StatusOr<WireWindow> window = measured.cluster->Run(1);  // takes memory, opens windows
    if (window.ok()) window = measured.cluster->Run(1);
    if (!window.ok()) return window.status();
    if (absl::Status verified = measured.cluster->Verify(); !verified.ok()) return verified;
    measured.iterations =
        std::max(1, static_cast<int>(std::ceil(options_.window_seconds / window->seconds)));
    return measured;
  }

  absl::Status Sample(const Measured& measured, const WireLayout& layout, int64_t parameters,
                      GoodputSamples* samples) {
    const absl::StatusOr<WireWindow> window = measured.cluster->Run(measured.iterations);
    if (!window.ok()) return window.status();
    samples->bytes_per_iteration = 2 * EncodedBytes(layout.encoding, parameters) * layout.workers;
    const double bytes = static_cast<double>(samples->bytes_per_iteration) * measured.iterations;
    samples->iteration_seconds.push_back(window->seconds / measured.iterations);
    samples->goodput.push_back(bytes / window->seconds);
    samples->cpu_per_gb.push_back(window->cpu_seconds / (bytes * 1e-9));
    return absl::OkStatus();
  }

  absl::StatusOr<GoodputResult> MeasureGoodput(const WireLayout& layout, const RawCandidate& best) {
    GoodputResult result;
    result.layout = layout;
    WireLayout ps = layout;
    ps.limits = options_.limits;
    ps.encoding = options_.encoding;
    WireLayout raw = layout;
    raw.system = kRawSystem;
    raw.limits = {absl::StrCat("chunk_bytes: ", best.chunk_bytes)};
    raw.socket_buffer_bytes = best.socket_buffer_bytes;
    result.raw_chunk_bytes = best.chunk_bytes;
    result.raw_socket_buffer_bytes = best.socket_buffer_bytes;

    const absl::StatusOr<Config> config = Config::Parse(WireConfig(layout, folder_), "bench");
    if (!config.ok()) {
      result.skipped = std::string(config.status().message());
      return result;
    }
    const int64_t parameter_count = config->model().parameter_count();
    const int64_t model_bytes = parameter_count * 4;
    for (int shard = 0; shard < layout.shards; ++shard) {
      const int64_t parameters = config->plan().shard_parameters(shard) * 4;
      result.shard_needs_bytes =
          std::max(result.shard_needs_bytes, layout.workers > 1 ? 2 * parameters : parameters);
    }
    const int64_t needs =
        2 * (layout.workers + 1) * model_bytes + (layout.workers + layout.shards) * kProcessBytes;
    const int64_t available = AvailableBytes();
    if (needs > available) {
      result.skipped = absl::StrFormat("needs %.1f GB of memory, %.1f GB are free", needs * 1e-9,
                                       available * 1e-9);
      Tell(absl::StrCat(Name(layout), ": skipped, ", result.skipped));
      return result;
    }
    // Both systems stay up where memory allows; otherwise each is started for each window.
    const bool side_by_side = 2 * needs < available;
    Tell(absl::StrCat(Name(layout), side_by_side ? "" : " (one system at a time)"));
    Measured running[2];
    for (int i = 0; i < 2 * options_.repeat; ++i) {
      const WireLayout& turn = i % 2 == 0 ? ps : raw;
      Measured& measured = running[i % 2];
      if (measured.cluster == nullptr) {
        absl::StatusOr<Measured> prepared = Prepare(turn);
        if (!prepared.ok()) return prepared.status();
        measured = *std::move(prepared);
      }
      GoodputSamples& samples = i % 2 == 0 ? result.ps : result.raw;
      if (absl::Status status = Sample(measured, turn, parameter_count, &samples); !status.ok()) {
        return status;
      }
      const absl::StatusOr<WireMemory> memory = measured.cluster->Memory();
      if (!memory.ok()) return memory.status();
      samples.memory = *memory;
      if (!side_by_side) measured.cluster.reset();
    }
    return result;
  }

  static std::string Name(const WireLayout& layout) {
    return absl::StrFormat("%s, %d x %d", layout.transport, layout.workers, layout.shards);
  }

  // Tries sizes of chunks and of the kernel's buffers, with one worker and one shard.
  absl::StatusOr<RawCandidate> FindRawBest(const std::string& transport) {
    Tell(absl::StrCat(transport, ": the best raw socket"));
    RawCandidate best;
    for (const int64_t chunk_bytes : options_.raw_chunk_bytes) {
      for (const int buffer_bytes : options_.raw_socket_buffer_bytes) {
        WireLayout layout = ModelLayout(transport);
        layout.system = kRawSystem;
        layout.limits = {absl::StrCat("chunk_bytes: ", chunk_bytes)};
        layout.socket_buffer_bytes = buffer_bytes;
        absl::StatusOr<GoodputSamples> samples = Sample(layout, (options_.repeat + 1) / 2);
        if (!samples.ok()) return samples.status();
        const RawCandidate candidate = {transport, chunk_bytes, buffer_bytes,
                                        Quantile(samples->goodput, 0.5)};
        if (candidate.goodput > best.goodput) best = candidate;
        results_.candidates.push_back(candidate);
      }
    }
    return best;
  }

  // Windows of a cluster that is up only for them.
  absl::StatusOr<GoodputSamples> Sample(const WireLayout& layout, int windows) {
    const absl::StatusOr<Config> config = Config::Parse(WireConfig(layout, folder_), "bench");
    if (!config.ok()) return config.status();
    const absl::StatusOr<Measured> measured = Prepare(layout);
    if (!measured.ok()) return measured.status();
    GoodputSamples samples;
    for (int i = 0; i < windows; ++i) {
      absl::Status status = Sample(*measured, layout, config->model().parameter_count(), &samples);
      if (!status.ok()) return status;
    }
    return samples;
  }

  // Of a model of width x width parameters in one tensor.
  absl::Status MeasureLatency(const std::string& transport, int64_t width) {
    const int64_t bytes = EncodedBytes(options_.encoding, width * width);
    Tell(absl::StrCat(transport, ": latency of ", bytes, " bytes"));
    WireLayout layout;
    layout.transport = transport;
    layout.limits = options_.limits;
    layout.encoding = options_.encoding;
    layout.model = absl::StrFormat(
        "input { channels: %d height: 1 width: 1 } layer { name: \"only\" conv { out_channels: %d "
        "kernel: 1 bias: false } }",
        width, width);
    absl::StatusOr<std::unique_ptr<WireCluster>> cluster =
        WireCluster::Start(layout, folder_, interrupts_);
    if (!cluster.ok()) return cluster.status();
    absl::StatusOr<WireLatency> latency = (*cluster)->MeasureLatency(options_.latency_count);
    if (!latency.ok()) return latency.status();
    results_.latency.push_back({transport, bytes, *latency});
    return (*cluster)->Verify();
  }

  const WireOptions& options_;
  const std::string& folder_;
  const Interrupts* const interrupts_;
  WireResults results_;
};

}  // namespace

absl::StatusOr<WireResults> MeasureWire(const WireOptions& options, const std::string& folder,
                                        const Interrupts* interrupts) {
  return Measurement(options, folder, interrupts).Run();
}

}  // namespace ps
