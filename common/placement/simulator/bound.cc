// The proof of each term is in docs/experiment.md, "The bound".

#include "common/placement/simulator/bound.h"

#include <algorithm>
#include <vector>

#include "common/wire/encoding.h"

namespace evenshard {
namespace {

class BoundTerms {
 public:
  BoundTerms(const PlannedRun& run, const ClusterRates& rates,
             absl::Span<const LayerTime> layer_times)
      : run_(run),
        rates_(rates),
        times_(layer_times),
        gradient_bytes_(EncodedBytes(run.config.exchange().gradient_encoding(), 1)),
        parameter_bytes_(EncodedBytes(run.config.exchange().parameter_encoding(), 1)),
        is_sequential_(run.config.exchange().schedule() == ExchangeConfig::SEQUENTIAL),
        is_sync_(run.config.update().policy() != Update::ASYNC),
        fastest_(*std::min_element(rates.worker_slowdown.begin(), rates.worker_slowdown.end())),
        shard_elements_(run.plan.shards()) {
    for (const LayerTime& time : layer_times) {
      all_forward_ += time.forward_seconds;
      all_backward_ += time.backward_seconds;
    }
  }

  Bound Get() {
    const auto slowest =
        std::max_element(rates_.worker_slowdown.begin(), rates_.worker_slowdown.end());
    const double compute_seconds = *slowest * (all_forward_ + all_backward_);
    Offer({BoundTerm::kCompute, static_cast<int>(slowest - rates_.worker_slowdown.begin()),
           static_cast<int>(times_.size()) - 1, compute_seconds, 0});
    bound_.compute_seconds = compute_seconds;
    // The seconds of computing before the first gradient of layers 0 to `layer` can leave, counted
    // from the moment when the worker begins what needs all their parameters.
    double chain = all_forward_ + all_backward_;
    for (size_t layer = 0; layer < times_.size(); ++layer) {
      AddLayer(run_.model.layers()[layer]);
      // Under SEQUENTIAL nothing leaves before everything is computed.
      if (!is_sequential_ || layer + 1 == times_.size()) AddTerms(layer, chain);
      if (is_sequential_) continue;
      chain -= times_[layer].backward_seconds;
      if (run_.config.exchange().schedule() == ExchangeConfig::FULL) {
        chain -= times_[layer].forward_seconds;
      }
    }
    SetParts();
    return bound_;
  }

 private:
  void Offer(const BoundTerm& term) {
    if (term.seconds() > bound_.term.seconds()) bound_.term = term;
  }

  void AddLayer(const Layer& layer) {
    for (int i = 0; i < layer.tensor_count; ++i) {
      for (const uint32_t id : run_.plan.chunks_of_tensor(layer.first_tensor + i)) {
        const Chunk& chunk = run_.plan.chunks()[id];
        elements_ += chunk.size;
        shard_elements_[chunk.shard] += chunk.size;
      }
    }
  }

  // The times in which the layers that have been added pass a link of a shard, once for a worker.
  double InSeconds(int shard) const {
    return gradient_bytes_ * shard_elements_[shard] / rates_.shard_link[shard];
  }
  double OutSeconds(int shard) const {
    return parameter_bytes_ * shard_elements_[shard] / rates_.shard_link[shard];
  }
  // The time in which a shard takes their gradients in, once for a worker.
  double TakeInSeconds(int shard) const {
    return std::max(InSeconds(shard),
                    gradient_bytes_ * shard_elements_[shard] / rates_.shard_processing[shard]);
  }

  void AddTerms(int layer, double chain) {
    double alone_in = 0;
    double alone_out = 0;
    const double compute_seconds = is_sync_ ? fastest_ * chain : 0;
    const int workers = rates_.worker_link.size();
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      alone_in = std::max(alone_in, InSeconds(shard));
      alone_out = std::max(alone_out, OutSeconds(shard));
      Offer({BoundTerm::kShardIn, shard, layer, compute_seconds, workers * TakeInSeconds(shard)});
      Offer({BoundTerm::kShardOut, shard, layer, compute_seconds, workers * OutSeconds(shard)});
    }
    for (int rank = 0; rank < workers; ++rank) {
      const double push =
          std::max(alone_in, gradient_bytes_ * elements_ / rates_.worker_link[rank]);
      const double pull =
          std::max(alone_out, parameter_bytes_ * elements_ / rates_.worker_link[rank]);
      Offer({BoundTerm::kWorkerLink, rank, layer, rates_.worker_slowdown[rank] * chain,
             is_sequential_ ? push + pull : std::max(push, pull)});
    }
  }

  // REQUIRES: all layers have been added.
  void SetParts() {
    const double slowest_link =
        *std::min_element(rates_.worker_link.begin(), rates_.worker_link.end());
    const int workers = rates_.worker_link.size();
    bound_.push_seconds = gradient_bytes_ * elements_ / slowest_link;
    bound_.pull_seconds = parameter_bytes_ * elements_ / slowest_link;
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      bound_.push_seconds = std::max(bound_.push_seconds, workers * TakeInSeconds(shard));
      bound_.pull_seconds = std::max(bound_.pull_seconds, workers * OutSeconds(shard));
    }
    bound_.in_step_seconds = bound_.compute_seconds + bound_.push_seconds + bound_.pull_seconds;
  }

  const PlannedRun& run_;
  const ClusterRates& rates_;
  const absl::Span<const LayerTime> times_;
  const double gradient_bytes_;  // of an element
  const double parameter_bytes_;
  const bool is_sequential_;
  const bool is_sync_;
  const double fastest_;  // the smallest slowdown
  double all_forward_ = 0;
  double all_backward_ = 0;
  // What AddLayer has counted of the layers so far: the elements, and those on each shard.
  double elements_ = 0;
  std::vector<double> shard_elements_;
  Bound bound_;
};

}  // namespace

Bound BoundOf(const PlannedRun& run, const ClusterRates& rates,
              absl::Span<const LayerTime> layer_times) {
  return BoundTerms(run, rates, layer_times).Get();
}

}  // namespace evenshard
