#include "tools/psctl/advice/choice.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/planned_config.h"
#include "common/placement/simulator/bound.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/simulation.h"
#include "common/placement/simulator/simulator.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// A schedule must be so much faster than an earlier one to be preferred, because no prediction is
// more exact.
constexpr double kFaster = 1.005;
// An iteration that takes at most this factor of its computing is bound by it.
constexpr double kOfComputing = 1.05;

// More images/s are not of this world.
constexpr double kMostImages = 1e15;

// More equal hosts with shards are predicted as so many.
constexpr int kMostHosts = 24;

constexpr ExchangeConfig::Schedule kSchedules[] = {ExchangeConfig::FULL, ExchangeConfig::BACKWARD,
                                                   ExchangeConfig::SEQUENTIAL};

absl::StatusOr<PlannedConfig> PlannedConfigOf(const Candidate& candidate) {
  return PlannedConfig::Parse(candidate.config.DebugString(), "advice");
}

// Returns the first problem of an error without the place, which is in no file: "shard: has ...".
std::string Problem(const absl::Status& status) {
  absl::string_view message = status.message();
  message = message.substr(0, message.find('\n'));
  const size_t place = message.find(": ");
  return std::string(absl::StartsWith(message, "advice:") && place != message.npos
                         ? message.substr(place + 2)
                         : message);
}

double RingLinkBytes(const PlannedConfig& config) {
  const ExchangeConfig& exchange = config.proto().exchange();
  double most = 0;
  for (int rank = 0; rank < config.workers(); ++rank) {
    double bytes = 0;
    for (const RingSegment& segment : config.ring_plan().segments()) {
      if (segment.part != rank) bytes += EncodedBytes(exchange.gradient_encoding(), segment.size);
      if (segment.part != (rank + 1) % config.workers()) {
        bytes += EncodedBytes(exchange.parameter_encoding(), segment.size);
      }
    }
    most = std::max(most, bytes);
  }
  return most;
}

double LinkBytes(const PlannedConfig& config) {
  if (config.is_ring()) return RingLinkBytes(config);
  struct Bytes {
    double pushed = 0;
    double pulled = 0;
  };
  Bytes all;
  std::vector<Bytes> on_shard(config.shards());
  for (const Chunk& chunk : config.plan().chunks()) {
    if (config.IsBuffer(chunk)) continue;
    const double pushed = EncodedBytes(config.GradientEncoding(false, chunk), chunk.size);
    const double pulled = EncodedBytes(config.AnswerEncoding(chunk), chunk.size);
    all.pushed += pushed;
    all.pulled += pulled;
    on_shard[chunk.shard].pushed += pushed;
    on_shard[chunk.shard].pulled += pulled;
  }
  const int hosts = config.proto().colocated() ? config.shards() : 0;
  double most = hosts < config.workers() ? std::max(all.pushed, all.pulled) : 0;
  for (int host = 0; host < hosts; ++host) {
    const Bytes& own = on_shard[host];
    const double others = config.workers() - 1;
    most = std::max({most, all.pushed - own.pushed + others * own.pulled,
                     all.pulled - own.pulled + others * own.pushed});
  }
  return most;
}

bool AreEqual(const std::vector<double>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// Returns a cluster of kMostHosts hosts with shards in place of more, if all are equal: the
// simulator would play each of them. There are as many workers and chunks for each shard. `whole`
// is the candidate's config.
std::optional<PlannedConfig> Smaller(const Candidate& candidate, const PlannedConfig& whole) {
  constexpr int64_t kMultiple = 64;
  const ClusterConfig& given = candidate.config;
  const ClusterRates rates = ConfiguredRates(given);
  if (!given.colocated() || given.shard_size() <= kMostHosts || !AreEqual(rates.worker_link) ||
      !AreEqual(rates.worker_slowdown) || !AreEqual(rates.shard_processing)) {
    return std::nullopt;
  }
  Candidate smaller = candidate;
  smaller.config.set_workers(given.workers() * kMostHosts / given.shard_size());
  smaller.config.mutable_shard()->DeleteSubrange(kMostHosts, given.shard_size() - kMostHosts);
  if (Compute::Emulated* device = MutableEmulatedDeviceOf(smaller.config.mutable_compute());
      device != nullptr && device->worker_slowdown_size() > smaller.config.workers()) {
    device->mutable_worker_slowdown()->Truncate(smaller.config.workers());
  }
  const int64_t chunk_bytes =
      whole.proto().limits().chunk_bytes() * given.shard_size() / kMostHosts;
  smaller.config.mutable_limits()->set_chunk_bytes(
      std::min(chunk_bytes, whole.proto().limits().held_bytes()) / kMultiple * kMultiple);
  absl::StatusOr<PlannedConfig> config = PlannedConfigOf(smaller);
  if (!config.ok()) return std::nullopt;
  return *std::move(config);
}

// A candidate, as the simulator takes it.
class Simulated {
 public:
  // REQUIRES: `config` is the candidate's.
  Simulated(const Candidate& candidate, PlannedConfig config, double latency_seconds)
      : link_bytes_(LinkBytes(config)), workers_(config.workers()) {
    std::optional<PlannedConfig> smaller = Smaller(candidate, config);
    config_.emplace(smaller ? *std::move(smaller) : std::move(config));
    rates_ = ConfiguredRates(config_->proto());
    // The device was checked with the config.
    times_ = *PredictedLayerTimes(config_->model(), config_->proto());
    ConvertLinks(Framing(), &rates_);
    rates_.latency_seconds = latency_seconds;
    if (config_->workers() == workers_) return;
    // The busiest link takes as long as that of the whole cluster.
    const double factor = LinkBytes(*config_) / link_bytes_;
    for (double& rate : rates_.worker_link) rate *= factor;
    for (double& rate : rates_.shard_link) rate *= factor;
  }

  double link_bytes() const { return link_bytes_; }

  Prediction Predicted() const {
    Prediction prediction = Predict(config_->planned_run(), rates_, times_);
    prediction.batches_per_second *= static_cast<double>(workers_) / config_->workers();
    return prediction;
  }

  // REQUIRES: `prediction` is Predicted(). It is not called again.
  Bottleneck BottleneckOf(const Prediction& prediction) {
    const double compute = BoundOf(config_->planned_run(), rates_, times_).compute_seconds;
    const double others = prediction.iteration_seconds - compute;
    if (prediction.iteration_seconds <= kOfComputing * compute) return Bottleneck::kComputing;
    rates_.latency_seconds = 0;
    const double saved = prediction.iteration_seconds - Predicted().iteration_seconds;
    if (saved > others / 2) return Bottleneck::kLatency;
    // That without which the exchange alone could be the shortest.
    Bottleneck bottleneck = Bottleneck::kSharedLink;
    double least = std::numeric_limits<double>::infinity();
    for (const Bottleneck kind : {Bottleneck::kSharedLink, Bottleneck::kShardLink,
                                  Bottleneck::kWorkerLink, Bottleneck::kProcessing}) {
      const std::vector<LayerTime> no_times(times_.size());
      std::optional<ClusterRates> faster = Without(kind);
      if (!faster) continue;
      const double seconds = BoundOf(config_->planned_run(), *faster, no_times).iteration_seconds();
      if (seconds < least) {
        least = seconds;
        bottleneck = kind;
      }
    }
    return bottleneck;
  }

 private:
  // Returns the rates with nothing limited by what the kind names, or nothing if the cluster has
  // nothing of that kind.
  std::optional<ClusterRates> Without(Bottleneck kind) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    ClusterRates rates = rates_;
    const bool is_colocated = config_->proto().colocated();
    const auto hosts = rates.worker_link.begin() + (is_colocated ? config_->shards() : 0);
    switch (kind) {
      case Bottleneck::kSharedLink:
        if (!is_colocated) return std::nullopt;
        std::fill(rates.worker_link.begin(), hosts, kInfinity);
        absl::c_fill(rates.shard_link, kInfinity);
        break;
      case Bottleneck::kShardLink:
        if (is_colocated || config_->is_ring()) return std::nullopt;
        absl::c_fill(rates.shard_link, kInfinity);
        break;
      case Bottleneck::kWorkerLink:
        if (hosts == rates.worker_link.end()) return std::nullopt;
        std::fill(hosts, rates.worker_link.end(), kInfinity);
        break;
      default:
        if (config_->is_ring()) return std::nullopt;
        absl::c_fill(rates.shard_processing, kInfinity);
    }
    return rates;
  }

  const double link_bytes_;  // of the whole cluster, as is workers_
  const int workers_;
  std::optional<PlannedConfig> config_;  // what is simulated
  ClusterRates rates_;
  std::vector<LayerTime> times_;
};

}  // namespace

const char* BottleneckName(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::kComputing:
      return "computing";
    case Bottleneck::kWorkerLink:
      return "workers' links";
    case Bottleneck::kShardLink:
      return "servers' links";
    case Bottleneck::kSharedLink:
      return "links of worker and shard";
    case Bottleneck::kProcessing:
      return "servers' processing";
    default:
      return "latency";
  }
}

std::string FormatRate(double images_per_second) {
  if (images_per_second >= 999.5) return FormatCount(std::llround(images_per_second));
  return absl::StrFormat("%.3g", images_per_second);
}

std::string NameOf(const Candidate& candidate) {
  return candidate.difference.empty() ? candidate.name
                                      : absl::StrCat(candidate.name, ", ", candidate.difference);
}

Choice Evaluate(const Candidate& candidate, double latency_seconds, Schedules schedules) {
  Choice choice = {.candidate = candidate};
  std::vector<ExchangeConfig::Schedule> tried(std::begin(kSchedules), std::end(kSchedules));
  if (candidate.config.exchange().has_schedule()) tried = {candidate.config.exchange().schedule()};
  std::optional<Simulated> best;
  Prediction best_prediction;
  for (const ExchangeConfig::Schedule schedule : tried) {
    if (best && schedules == Schedules::kFirst) break;
    Candidate scheduled = candidate;
    scheduled.config.mutable_exchange()->set_schedule(schedule);
    Candidate simulated_as = scheduled;
    if (candidate.has_measured_connections)
      simulated_as.config.mutable_limits()->clear_connections();
    absl::StatusOr<PlannedConfig> config = PlannedConfigOf(simulated_as);
    if (!config.ok()) {
      choice.refused = Problem(config.status());
      continue;
    }
    Simulated simulated(simulated_as, *std::move(config), latency_seconds);
    const Prediction prediction = simulated.Predicted();
    const double images = prediction.batches_per_second * candidate.config.training().batch_size();
    if (!(prediction.iteration_seconds < kMostIterationSeconds && images < kMostImages)) {
      choice.refused = absl::StrCat("its devices and links would make ", images, " images/s");
      continue;
    }
    if (images <= kFaster * choice.images_per_second) continue;
    choice.candidate = std::move(scheduled);
    choice.iteration_seconds = prediction.iteration_seconds;
    choice.images_per_second = images;
    best.emplace(std::move(simulated));
    best_prediction = prediction;
  }
  if (!best) return choice;
  choice.refused.clear();
  choice.link_bytes = best->link_bytes();
  choice.bottleneck = best->BottleneckOf(best_prediction);
  return choice;
}

}  // namespace evenshard
