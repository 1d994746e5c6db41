#include "tools/psctl/report/plan/plan_report.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/config/shard_rates.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/bound.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/simulator.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

constexpr size_t kShortestRange = 3;

// The bytes that a worker exchanges with a shard in an iteration.
struct Exchanged {
  int64_t in = 0;
  int64_t out = 0;
};

Exchanged ExchangedWith(const PlannedConfig& config, int shard) {
  Exchanged bytes;
  for (const uint32_t id : config.plan().chunks_of_shard(shard)) {
    const Chunk& chunk = config.plan().chunks()[id];
    if (config.IsBuffer(chunk)) continue;  // moves when it has changed
    bytes.in += EncodedBytes(config.GradientEncoding(/*assigned=*/false, chunk), chunk.size);
    bytes.out += EncodedBytes(config.AnswerEncoding(chunk), chunk.size);
  }
  return bytes;
}

// Returns PlanReport::busiest_link_bytes. `worker` is what a worker exchanges with all shards.
int64_t BusiestLinkBytes(const PlannedConfig& config, const Exchanged& worker,
                         absl::Span<const Exchanged> with_shard) {
  const int64_t workers = config.workers();
  const bool is_colocated = config.proto().colocated();
  int64_t most = 0;
  for (const Exchanged& shard : with_shard) {
    if (is_colocated) {
      // The link passes what the worker exchanges with other shards and the shard with other
      // workers.
      most = std::max({most, worker.in - shard.in + (workers - 1) * shard.out,
                       worker.out - shard.out + (workers - 1) * shard.in});
    } else {
      most = std::max({most, workers * shard.in, workers * shard.out});
    }
  }
  // A worker without a shard on its host.
  const bool has_own = !is_colocated || config.shards() < config.workers();
  return has_own ? std::max({most, worker.in, worker.out}) : most;
}

std::string SliceName(const Tensor& tensor, const Slice& slice) {
  if (slice.size == tensor.size) return tensor.name;
  return absl::StrCat(tensor.name, "[", FormatCount(slice.begin), ":",
                      FormatCount(slice.begin + slice.size), ")");
}

// Returns ShardLoad::holds.
std::vector<std::string> Holds(const Model& model, const Plan& plan, int shard) {
  std::vector<Slice> slices;
  for (const Slice& slice : plan.slices()) {
    if (slice.shard == shard) slices.push_back(slice);
  }
  std::vector<std::string> holds;
  std::vector<std::string> run;  // whole layers in a row
  const auto end_run = [&] {
    if (run.size() >= kShortestRange) {
      holds.push_back(absl::StrCat(run.front(), " .. ", run.back()));
    } else {
      holds.insert(holds.end(), run.begin(), run.end());
    }
    run.clear();
  };
  for (const Layer& layer : model.layers()) {
    if (layer.tensor_count == 0) continue;
    int64_t owned = 0;
    std::vector<std::string> parts;
    for (const Slice& slice : slices) {
      if (slice.tensor < layer.first_tensor ||
          slice.tensor >= layer.first_tensor + layer.tensor_count) {
        continue;
      }
      owned += slice.size;
      parts.push_back(SliceName(model.tensors()[slice.tensor], slice));
    }
    if (owned == layer.elements) {
      run.push_back(layer.name);
    } else {
      end_run();
      holds.insert(holds.end(), parts.begin(), parts.end());
    }
  }
  end_run();
  return holds;
}

// Returns the layer with the most parameters on the shard, and how many it has there.
std::pair<std::string, int64_t> LargestLayer(const Model& model, const Plan& plan, int shard) {
  std::vector<int64_t> owned(model.tensors().size());
  for (const Slice& slice : plan.slices()) {
    if (slice.shard == shard) owned[slice.tensor] += slice.size;
  }
  std::pair<std::string, int64_t> largest;
  for (const Layer& layer : model.layers()) {
    int64_t sum = 0;
    for (int i = 0; i < layer.tensor_count; ++i) sum += owned[layer.first_tensor + i];
    if (sum > largest.second) largest = {layer.name, sum};
  }
  return largest;
}

// What the exchange's encodings are. Models of 16 bits have theirs in memory already.
std::vector<EncodedTraffic> Encoded(const ExchangeConfig& exchange) {
  std::vector<EncodedTraffic> encoded;
  const auto add = [&](const char* what, Encoding encoding) {
    if (encoding == FLOAT32) return;
    encoded.push_back({what, Encoding_Name(encoding), MeasureEncoding(encoding)});
  };
  add("gradients", exchange.gradient_encoding());
  add("parameters", exchange.parameter_encoding());
  add("updates", exchange.has_update_encoding() ? exchange.update_encoding() : FLOAT32);
  return encoded;
}

void SetPrediction(const PlannedConfig& config, std::optional<double> link_gbps,
                   PlanReport* report) {
  ClusterRates rates = ConfiguredRates(config.proto(), link_gbps);
  // A config has one rate for all workers that share no link with a shard.
  report->worker_link_gbps = rates.worker_link.back();
  for (size_t shard = 0; shard < report->shards.size(); ++shard) {
    report->shards[shard].link_gbps = rates.shard_link[shard];
  }
  ConvertLinks(Framing(), &rates);
  // The device has been checked with the config.
  const std::vector<LayerTime> times = *PredictedLayerTimes(config.model(), config.proto());
  const Bound bound = BoundOf(config.planned_run(), rates, times);
  report->bound_seconds = bound.iteration_seconds();
  report->computes = bound.compute_seconds > 0;
  report->device = PredictedDevice(config.proto());
  const Prediction prediction = Predict(config.planned_run(), rates, times);
  report->predicted_seconds = prediction.iteration_seconds;
  report->predicted_images_per_second =
      prediction.batches_per_second * config.proto().training().batch_size();
}

}  // namespace

int64_t FloatBytes(int64_t elements) { return elements * static_cast<int64_t>(sizeof(float)); }

PlanReport MakePlanReport(const PlannedConfig& config, std::optional<double> link_gbps) {
  const Model& model = config.model();
  const Plan& plan = config.plan();
  const PlanChoice& choice = config.plan_choice();
  PlanReport report;
  report.scheme = PartitionName(config.proto().partition());
  report.partition = choice.alternatives.empty() ? PartitionName(choice.partition)
                                                 : choice.alternatives[choice.chosen].name;
  Exchanged of_worker;
  std::vector<Exchanged> with_shard;
  const std::vector<double> rates = ShardRates(config.proto());
  // Returns the time for which the shard is busy, in any unit.
  const auto load_for_rate = [&](int shard) {
    return plan.shard_parameters(shard) / (rates.empty() ? 1 : rates[shard]);
  };
  for (int shard = 0; shard < plan.shards(); ++shard) {
    ShardLoad load;
    load.parameters = plan.shard_parameters(shard);
    load.bytes = FloatBytes(load.parameters);
    load.share = static_cast<double>(load.parameters) / model.element_count();
    const Exchanged exchanged = with_shard.emplace_back(ExchangedWith(config, shard));
    of_worker.in += exchanged.in;
    of_worker.out += exchanged.out;
    load.bytes_in = config.workers() * exchanged.in;
    load.bytes_out = config.workers() * exchanged.out;
    load.bytes_each_way = std::max(load.bytes_in, load.bytes_out);
    if (!rates.empty()) load.gbps = rates[shard];
    load.holds = Holds(model, plan, shard);
    const auto [layer, parameters] = LargestLayer(model, plan, shard);
    load.largest_layer = layer;
    load.largest_layer_share = static_cast<double>(parameters) / load.parameters;
    if (load_for_rate(shard) > load_for_rate(report.bottleneck)) report.bottleneck = shard;
    report.shards.push_back(std::move(load));
  }
  report.busiest_link_bytes = BusiestLinkBytes(config, of_worker, with_shard);
  const double rate_of_all =
      rates.empty() ? plan.shards() : std::accumulate(rates.begin(), rates.end(), 0.0);
  report.ratio_to_balanced =
      load_for_rate(report.bottleneck) / (model.element_count() / rate_of_all);
  report.worst_stretch = WorstStretch(model, plan, rates);
  report.encoded = Encoded(config.proto().exchange());
  SetPrediction(config, link_gbps, &report);
  return report;
}

}  // namespace evenshard
