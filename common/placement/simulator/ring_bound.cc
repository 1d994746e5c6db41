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
    // Buckets are numbered from the last layers to the front ones.
    const std::vector<RingBucket>& buckets = run_.ring->buckets();
    const bool leave_early = schedule_ != ExchangeConfig::SEQUENTIAL && !run_.config.has_local();
    double bytes = 0;
    for (int i = static_cast<int>(buckets.size()) - 1; i >= 0; --i) {
      const RingBucket& bucket = buckets[i];
      for (int layer = bucket.first_layer; leave_early && layer < bucket.last_layer; ++layer) {
        if (run_.model.layers()[layer].tensor_count == 0) continue;
        const Model::Range range = run_.model.RangeOf(run_.model.layers()[layer]);
        AddTerm(bytes, range.begin + range.size - bucket.begin, layer, leave_early);
      }
      bytes += SumBytes(bucket.size) + ParameterBytes(bucket.size);
      if (leave_early || i == 0) AddTerm(bytes, 0, bucket.last_layer, leave_early);
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

  // Adds the iteration time that the layers up to `last` cannot undercut. They have buckets of
  // which a worker sends `bytes` in all, and `more` floats at the front of a bucket, whose segments
  // may all leave out the slowest link.
  void AddTerm(double bytes, int64_t more, int last, bool leave_early) {
    double chain = 0;
    for (int layer = 0; layer < static_cast<int>(times_.size()); ++layer) {
      const bool follows = layer >= last || schedule_ != ExchangeConfig::FULL;
      if (follows) chain += times_[layer].forward_seconds;
      if (layer >= last || !leave_early) chain += times_[layer].backward_seconds;
    }
    const int workers = run_.config.workers();
    double each = 0;  // the time of a byte on all links, one after another
    for (int rank = 0; rank < workers; ++rank) each += 1 / LinkRate(rank);
    const double but_slowest = each - 1 / LinkRate(BusiestLink());
    const double more_bytes = (SumBytes(more) + ParameterBytes(more)) * workers / (workers - 1);
    Offer({BoundTerm::kWorkerLink, BusiestLink(), last, ComputeSeconds(fastest_, chain),
           (bytes * each + more_bytes * but_slowest) / workers});
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
