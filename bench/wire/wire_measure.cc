#include "bench/wire/wire_measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/quantile.h"
#include "common/base/status_macros.h"
#include "common/placement/planned_config.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// An estimate of the memory that a process takes besides its tensors: the most that was observed,
// with room for socket buffers.
constexpr int64_t kProcessBytes = 256 << 20;

// Returns MemAvailable of /proc/meminfo.
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
    ASSIGN_OR_RETURN(const PlannedConfig config,
                     ParseConfig(ModelLayout(options_.transports.front())));
    parameters_ = config.model().element_count();
    for (const std::string& transport : options_.transports) {
      ASSIGN_OR_RETURN(const RawCandidate best, FindRawBest(transport));
      for (const int workers : options_.workers) {
        for (const int shards : options_.shards) {
          results_.goodput.push_back(Goodput(transport, workers, shards, best));
        }
      }
    }
    const size_t layouts = options_.workers.size() * options_.shards.size();
    for (size_t layout = 0; layout < layouts; ++layout) {
      std::vector<GoodputResult*> results;  // one layout over each transport
      for (size_t i = layout; i < results_.goodput.size(); i += layouts) {
        if (results_.goodput[i].skipped.empty()) results.push_back(&results_.goodput[i]);
      }
      if (results.empty()) continue;
      RETURN_IF_ERROR(MeasureGoodput(results));
    }
    for (const std::string& transport : options_.transports) {
      for (const int64_t width : {16, 128, 512}) {
        RETURN_IF_ERROR(MeasureLatency(transport, width));
      }
    }
    return std::move(results_);
  }

 private:
  // A running cluster, and the number of iterations that fill a window.
  struct Measured {
    std::unique_ptr<WireCluster> cluster;
    int iterations = 1;
  };

  // Returns a layout of the model with one worker and one shard.
  WireLayout ModelLayout(const std::string& transport) const {
    WireLayout layout;
    layout.model = absl::StrCat("builtin: \"", options_.model, "\"");
    layout.transport = transport;
    return layout;
  }

  static void Tell(const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); }

  // Starts the cluster, runs iterations that are not counted, and verifies their result.
  absl::StatusOr<Measured> Prepare(const WireLayout& layout) {
    Measured measured;
    ASSIGN_OR_RETURN(measured.cluster, WireCluster::Start(layout, folder_, interrupts_));
    RETURN_IF_ERROR(measured.cluster->Run(1).status());  // warms memory and TCP up
    ASSIGN_OR_RETURN(const WireWindow window, measured.cluster->Run(1));
    RETURN_IF_ERROR(measured.cluster->Verify());
    measured.iterations =
        std::max(1, static_cast<int>(std::ceil(options_.window_seconds / window.seconds)));
    return measured;
  }

  absl::Status Sample(const Measured& measured, const WireLayout& layout, GoodputSamples* samples) {
    ASSIGN_OR_RETURN(const WireWindow window, measured.cluster->Run(measured.iterations));
    samples->bytes_per_iteration = 2 * EncodedBytes(layout.encoding, parameters_) * layout.workers;
    const double bytes = static_cast<double>(samples->bytes_per_iteration) * measured.iterations;
    samples->iteration_seconds.push_back(window.seconds / measured.iterations);
    samples->goodput.push_back(bytes / window.seconds);
    samples->cpu_per_gb.push_back(window.cpu_seconds / (bytes * 1e-9));
    return absl::OkStatus();
  }

  // Returns a result without samples for what is to be measured, or with the reason to skip it.
  GoodputResult Goodput(const std::string& transport, int workers, int shards,
                        const RawCandidate& best) const {
    GoodputResult result;
    result.layout = ModelLayout(transport);
    result.layout.workers = workers;
    result.layout.shards = shards;
    result.raw_chunk_bytes = best.chunk_bytes;
    result.raw_socket_buffer_bytes = best.socket_buffer_bytes;
    const absl::StatusOr<PlannedConfig> config = ParseConfig(result.layout);
    if (!config.ok()) {
      result.skipped = std::string(config.status().message());
      return result;
    }
    for (int shard = 0; shard < shards; ++shard) {
      const int64_t parameters = config->plan().shard_parameters(shard) * 4;
      // A shard that shares memory has mapped each worker's gradients and parameters.
      const int shared = transport == "shared" ? 2 * workers : 0;
      result.shard_needs_bytes =
          std::max(result.shard_needs_bytes, ((workers > 1 ? 2 : 1) + shared) * parameters);
    }
    const int64_t needs = NeedsBytes(result.layout);
    const int64_t available = AvailableBytes();
    if (needs > available) {
      result.skipped = absl::StrFormat("needs %.1f GB of memory, %.1f GB are free", needs * 1e-9,
                                       available * 1e-9);
      Tell(absl::StrCat(Name(result.layout), ": skipped, ", result.skipped));
    }
    return result;
  }

  // Estimates the memory of all processes of a layout.
  int64_t NeedsBytes(const WireLayout& layout) const {
    return 2 * (layout.workers + 1) * parameters_ * int64_t{sizeof(float)} +
           (layout.workers + layout.shards) * kProcessBytes;
  }

  // A system in a layout, and where the samples of its windows go.
  struct Turn {
    WireLayout layout;
    GoodputSamples* samples;
  };

  // Returns the layout for ps, with the settings of the command line.
  WireLayout OfPs(WireLayout layout) const {
    layout.limits = options_.limits;
    layout.encoding = options_.encoding;
    layout.log_level = options_.log_level;
    return layout;
  }

  // Returns the layout for the raw baseline.
  static WireLayout OfRaw(WireLayout layout, int64_t chunk_bytes, int socket_buffer_bytes) {
    layout.system = kRawSystem;
    layout.limits = {absl::StrCat("chunk_bytes: ", chunk_bytes)};
    layout.socket_buffer_bytes = socket_buffer_bytes;
    return layout;
  }

  bool SideBySide(const std::vector<Turn>& turns) const {
    int64_t needs = 0;
    for (const Turn& turn : turns) needs += NeedsBytes(turn.layout);
    return needs < AvailableBytes();
  }

  // Measures one layout, over one or more transports.
  absl::Status MeasureGoodput(const std::vector<GoodputResult*>& results) {
    std::vector<Turn> turns;
    for (GoodputResult* result : results) {
      turns.push_back({OfPs(result->layout), &result->ps});
      turns.push_back(
          {OfRaw(result->layout, result->raw_chunk_bytes, result->raw_socket_buffer_bytes),
           &result->raw});
      const WireLayout& layout = result->layout;
      if (layout.transport == "tcp" && layout.workers == 8 && layout.shards == 1) {
        turns.push_back({OfPs(ModelLayout("tcp")), &results_.one_beside_eight});
      }
    }
    if (results.size() > 1 && !SideBySide(turns)) {
      for (GoodputResult* result : results) {
        RETURN_IF_ERROR(MeasureGoodput({result}));
      }
      return absl::OkStatus();
    }
    return SampleInTurn(turns, options_.repeat);
  }

  // Samples `windows` windows of each system in turn. All systems stay up if memory permits;
  // otherwise each is started anew for each window.
  absl::Status SampleInTurn(const std::vector<Turn>& turns, int windows) {
    const bool side_by_side = SideBySide(turns);
    std::string names;
    for (const Turn& turn : turns) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", Name(turn.layout));
    }
    Tell(absl::StrCat(names, side_by_side ? "" : " (one at a time)"));
    std::vector<Measured> running(turns.size());
    for (int window = 0; window < windows; ++window) {
      for (size_t i = 0; i < turns.size(); ++i) {
        const Turn& turn = turns[i];
        Measured& measured = running[i];
        if (measured.cluster == nullptr) {
          ASSIGN_OR_RETURN(measured, Prepare(turn.layout));
        }
        RETURN_IF_ERROR(Sample(measured, turn.layout, turn.samples));
        ASSIGN_OR_RETURN(turn.samples->memory, measured.cluster->Memory());
        if (!side_by_side) measured.cluster.reset();
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PlannedConfig> ParseConfig(const WireLayout& layout) const {
    return PlannedConfig::Parse(WireConfig(layout, folder_), "bench");
  }

  static std::string Name(const WireLayout& layout) {
    return absl::StrFormat("%s over %s, %d x %d", layout.system, layout.transport, layout.workers,
                           layout.shards);
  }

  // Tries all sizes of chunks and of the kernel's buffers in turn, with one worker and one shard.
  absl::StatusOr<RawCandidate> FindRawBest(const std::string& transport) {
    std::vector<RawCandidate> candidates;
    for (const int64_t chunk_bytes : options_.raw_chunk_bytes) {
      for (const int buffer_bytes : options_.raw_socket_buffer_bytes) {
        candidates.push_back({transport, chunk_bytes, buffer_bytes});
      }
    }
    if (candidates.size() == 1) return candidates.front();
    std::vector<GoodputSamples> samples(candidates.size());
    std::vector<Turn> turns;
    for (size_t i = 0; i < candidates.size(); ++i) {
      turns.push_back({OfRaw(ModelLayout(transport), candidates[i].chunk_bytes,
                             candidates[i].socket_buffer_bytes),
                       &samples[i]});
    }
    RETURN_IF_ERROR(SampleInTurn(turns, (options_.repeat + 1) / 2));
    RawCandidate best;
    for (size_t i = 0; i < candidates.size(); ++i) {
      candidates[i].goodput = Quantile(samples[i].goodput, 0.5);
      if (candidates[i].goodput > best.goodput) best = candidates[i];
      results_.candidates.push_back(candidates[i]);
    }
    return best;
  }

  // Measures the latency of a model with one tensor of width x width parameters.
  absl::Status MeasureLatency(const std::string& transport, int64_t width) {
    const int64_t bytes = EncodedBytes(options_.encoding, width * width);
    Tell(absl::StrCat(transport, ": latency of ", bytes, " bytes"));
    WireLayout layout;
    layout.transport = transport;
    layout.model = absl::StrFormat(
        "input { channels: %d height: 1 width: 1 } layer { name: \"only\" conv { out_channels: %d "
        "kernel: 1 bias: false } }",
        width, width);
    ASSIGN_OR_RETURN(const std::unique_ptr<WireCluster> cluster,
                     WireCluster::Start(OfPs(layout), folder_, interrupts_));
    ASSIGN_OR_RETURN(const WireLatency latency, cluster->MeasureLatency(options_.latency_count));
    results_.latency.push_back({transport, bytes, latency});
    return cluster->Verify();
  }

  const WireOptions& options_;
  const std::string& folder_;
  const Interrupts* const interrupts_;
  int64_t parameters_ = 0;  // elements of the model
  WireResults results_;
};

}  // namespace

absl::StatusOr<WireResults> MeasureWire(const WireOptions& options, const std::string& folder,
                                        const Interrupts* interrupts) {
  return Measurement(options, folder, interrupts).Run();
}

}  // namespace evenshard
