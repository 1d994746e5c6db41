#include "common/placement/plan_choice.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/shard_rates.h"
#include "common/placement/plan/chunk_size.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/simulator.h"

namespace evenshard {
namespace {

// An alternative must be so much faster than an earlier one to be preferred, because no prediction
// is more exact.
constexpr double kFaster = 0.995;

// A scheme, and the rates by which it cuts; without rates it cuts evenly.
struct Candidate {
  Partition partition;
  std::vector<double> rates;
};

Candidate MakeCandidate(Partition::Scheme scheme, const std::vector<double>& rates,
                        std::optional<Partition::Placement> placement = std::nullopt) {
  Candidate candidate;
  candidate.rates = rates;
  candidate.partition.set_scheme(scheme);
  if (placement) candidate.partition.set_placement(*placement);
  return candidate;
}

std::vector<Candidate> Candidates(const std::vector<double>& rates) {
  std::vector<Candidate> candidates = {
      MakeCandidate(Partition::STRIPED, rates),
      MakeCandidate(Partition::MEMORY_BASED, rates),
      MakeCandidate(Partition::LAYER_BASED, rates, Partition::GREEDY),
      MakeCandidate(Partition::LAYER_BASED, {}, Partition::ROUND_ROBIN),
      MakeCandidate(Partition::LAYER_BASED, {}, Partition::TENSOR_ROUND_ROBIN),
  };
  if (std::adjacent_find(rates.begin(), rates.end(), std::not_equal_to<>()) != rates.end()) {
    candidates.push_back(MakeCandidate(Partition::STRIPED, {}));
    candidates.push_back(MakeCandidate(Partition::MEMORY_BASED, {}));
    candidates.push_back(MakeCandidate(Partition::LAYER_BASED, {}, Partition::GREEDY));
  }
  return candidates;
}

absl::StatusOr<PlanChoice> DecideAuto(const ClusterConfig& config, const Model& model,
                                      ChunkSize chunk) {
  ASSIGN_OR_RETURN(const std::vector<LayerTime> layer_times, PredictedLayerTimes(model, config));
  ClusterConfig assumed = config;
  // Processes may differ in their limits.
  assumed.clear_limits();
  SetChunkLimits(chunk.bytes, assumed.mutable_limits());
  ClusterRates rates = ConfiguredRates(config);
  ConvertLinks(Framing(), &rates);

  std::optional<PlanChoice> best;
  std::vector<PlanAlternative> alternatives;
  absl::Status refusal;
  for (const Candidate& candidate : Candidates(ShardRates(config))) {
    PlanAlternative& alternative = alternatives.emplace_back();
    alternative.name = absl::StrCat(PartitionName(candidate.partition),
                                    candidate.rates.empty() ? "" : " by rates");
    absl::StatusOr<Plan> plan =
        Plan::Create(model, candidate.partition, config.shard_size(), chunk.bytes, candidate.rates);
    if (!plan.ok()) {
      alternative.refused = std::string(plan.status().message());
      if (refusal.ok()) refusal = plan.status();
      continue;
    }
    alternative.seconds = Predict({assumed, model, *plan}, rates, layer_times).iteration_seconds;
    if (best && alternative.seconds >= kFaster * alternatives[best->chosen].seconds) continue;
    best = PlanChoice{.plan = *std::move(plan),
                      .partition = candidate.partition,
                      .chunk_bytes = chunk.bytes,
                      .chunk_bytes_reason = chunk.reason,
                      .alternatives = {},  // set in the end
                      .chosen = static_cast<int>(alternatives.size()) - 1};
  }
  if (!best) return refusal;
  best->alternatives = std::move(alternatives);
  return *std::move(best);
}

}  // namespace

absl::StatusOr<PlanChoice> ChoosePlan(const ClusterConfig& config, const Model& model) {
  const std::vector<double> rates = PlanRates(config);
  ChunkSize chunk = {.bytes = config.limits().chunk_bytes(), .reason = "as the config says"};
  if (!config.limits().has_chunk_bytes()) {
    chunk = ChooseChunkSize(model, config.shard_size(), rates);
  }
  if (config.partition().scheme() == Partition::AUTO) {
    return DecideAuto(config, model, std::move(chunk));
  }
  ASSIGN_OR_RETURN(
      Plan plan, Plan::Create(model, config.partition(), config.shard_size(), chunk.bytes, rates));
  return PlanChoice{.plan = std::move(plan),
                    .partition = config.partition(),
                    .chunk_bytes = chunk.bytes,
                    .chunk_bytes_reason = std::move(chunk.reason),
                    .alternatives = {}};
}

}  // namespace evenshard
