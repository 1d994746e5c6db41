// The proof of each term is in docs/experiment.md, "The bound".

#include "common/placement/simulator/ring_bound.h"

#include <algorithm>

#include "common/placement/simulator/local_passes.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

class RingBoundTerms {
 public:
  RingBoundTerms(const PlannedRun& run, const ClusterRates& rates,
                 absl::Span<const LayerTime> layer_times)
      : run_(run),
        rates_(rates),
        times_(layer_times),
        schedule_(run.config.exchange().schedule()),
        fastest_(*std::min_element(rates.worker_slowdown.begin(), rates.worker_slowdown.end())) {
    for (const LayerTime& time : layer_times) pass_ += time.forward_seconds + time.backward_seconds;
  }

  Bound Get() {
    const int last_layer = static_cast<int>(times_.size()) - 1;
    const auto slowest =
        std::max_element(rates_.worker_slowdown.begin(), rates_.worker_slowdown.end());
    bound_.compute_seconds = ComputeSeconds(*slowest, pass_);
    Offer({BoundTerm::kCompute, static_cast<int>(slowest - rates_.worker_slowdown.begin()),
           last_layer, bound_.compute_seconds, 0});
    // Buckets are numbered in the order in which they leave, so that these are the ones of the
    // front layers, and then of ever more.
    const std::vector<RingBucket>& buckets = run_.ring->buckets();
    const bool leave_early = schedule_ != ExchangeConfig::SEQUENTIAL && !run_.config.has_local();
    double bytes = 0;
    int last = 0;
    for (int i = static_cast<int>(buckets.size()) - 1; i >= 0; --i) {
      bytes += SumBytes(buckets[i].size) + ParameterBytes(buckets[i].size);
      last = std::max(last, buckets[i].last_layer);
      if (leave_early || i == 0) AddTerm(bytes, buckets[i].first_layer, last, leave_early);
    }
    const int busiest = BusiestLink();
    Offer({BoundTerm::kWorkerLink, busiest, last_layer, 0, bytes / LinkRate(busiest)});
    bound_.push_seconds = SumBytes(Floats()) / LinkRate(busiest);
    bound_.pull_seconds = ParameterBytes(Floats()) / LinkRate(busiest);
    bound_.in_step_seconds = bound_.compute_seconds + bound_.push_seconds + bound_.pull_seconds;
    return bound_;
  }

 private:
  void Offer(const BoundTerm& term) {
    if (term.seconds() > bound_.term.seconds()) bound_.term = term;
  }

  double ComputeSeconds(double slowdown, double chain) const {
    return slowdown * (chain + (LocalPasses(run_.config, slowdown * pass_) - 1) * pass_);
  }

  int64_t Floats() const {
    int64_t floats = 0;
    for (const RingBucket& bucket : run_.ring->buckets()) floats += bucket.size;
    return floats;
  }

  // The bytes that a worker sends of a bucket's sums, and of its parameters.
  double SentBytes(Encoding encoding, int64_t floats) const {
    const double workers = run_.config.workers();
    return (workers - 1) / workers * static_cast<double>(EncodedBytes(encoding, floats));
  }
  double SumBytes(int64_t floats) const {
    return SentBytes(run_.config.exchange().gradient_encoding(), floats);
  }
  double ParameterBytes(int64_t floats) const {
    return SentBytes(run_.config.exchange().parameter_encoding(), floats);
  }

  // The rate of the way from a worker to the next one.
  double LinkRate(int rank) const {
    return std::min(rates_.worker_link[rank],
                    rates_.worker_link[(rank + 1) % rates_.worker_link.size()]);
  }
  int BusiestLink() const {
    int slowest = 0;
    for (int rank = 1; rank < run_.config.workers(); ++rank) {
      if (LinkRate(rank) < LinkRate(slowest)) slowest = rank;
    }
    return slowest;
  }

  // Adds the iteration time that buckets of `bytes` in all cannot undercut. They have layers up to
  // `last`, and the backward pass releases `leaving` before the others of their first layers.
  void AddTerm(double bytes, int leaving, int last, bool leave_early) {
    double chain = 0;
    for (int layer = 0; layer < static_cast<int>(times_.size()); ++layer) {
      const bool follows = layer >= last || schedule_ != ExchangeConfig::FULL;
      if (follows) chain += times_[layer].forward_seconds;
      if (layer >= leaving || !leave_early) chain += times_[layer].backward_seconds;
    }
    double transfer = 0;
    for (int rank = 0; rank < run_.config.workers(); ++rank) transfer += bytes / LinkRate(rank);
    Offer({BoundTerm::kWorkerLink, BusiestLink(), last, ComputeSeconds(fastest_, chain),
           transfer / run_.config.workers()});
  }

  const PlannedRun& run_;
  const ClusterRates& rates_;
  const absl::Span<const LayerTime> times_;
  const ExchangeConfig::Schedule schedule_;
  const double fastest_;  // the smallest slowdown
  double pass_ = 0;       // forward and backward, all layers
  Bound bound_;
};

}  // namespace

Bound RingBoundOf(const PlannedRun& run, const ClusterRates& rates,
                  absl::Span<const LayerTime> layer_times) {
  return RingBoundTerms(run, rates, layer_times).Get();
}

}  // namespace evenshard
