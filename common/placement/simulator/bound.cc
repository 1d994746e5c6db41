// The proof of each term is in docs/experiment.md, "The bound".

#include "common/placement/simulator/bound.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/config/config_contract.h"
#include "common/placement/simulator/local_passes.h"
#include "common/placement/tensor_encoding.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// The bytes of some tensors, and those of them on each shard.
struct Bytes {
  double all = 0;
  std::vector<double> on_shard;

  void Add(const Chunk& chunk, Encoding encoding) {
    const double bytes = EncodedBytes(encoding, chunk.size);
    all += bytes;
    on_shard[chunk.shard] += bytes;
  }
};

// The bytes of gradients, and those of parameters.
struct Amount {
  Bytes pushed;
  Bytes pulled;

  void Add(const PlannedRun& run, const Chunk& chunk) {
    const Tensor& tensor = run.model.tensors()[chunk.tensor];
    pushed.Add(chunk, GradientEncodingOf(run.config.exchange(), tensor));
    pulled.Add(chunk, AnswerEncodingOf(run.config.exchange(), tensor));
  }
};

class BoundTerms {
 public:
  BoundTerms(const PlannedRun& run, const ClusterRates& rates,
             absl::Span<const LayerTime> layer_times)
      : run_(run),
        rates_(rates),
        times_(layer_times),
        is_sequential_(run.config.exchange().schedule() == ExchangeConfig::SEQUENTIAL),
        pushes_at_end_(is_sequential_ || run.config.has_local()),
        is_sync_(IsSynchronous(run.config.update())),
        clips_(ClipsMean(run.config)),
        fastest_(*std::min_element(rates.worker_slowdown.begin(), rates.worker_slowdown.end())),
        all_{.pushed = {.on_shard = std::vector<double>(run.plan.shards())},
             .pulled = {.on_shard = std::vector<double>(run.plan.shards())}},
        trained_(all_),
        whole_(all_) {
    for (const LayerTime& time : layer_times) {
      all_forward_ += time.forward_seconds;
      all_backward_ += time.backward_seconds;
    }
    for (const Chunk& chunk : run.plan.chunks()) {
      if (IsTrained(chunk)) whole_.Add(run_, chunk);
    }
  }

  Bound Get() {
    const auto slowest =
        std::max_element(rates_.worker_slowdown.begin(), rates_.worker_slowdown.end());
    const double compute_seconds = ComputeSeconds(*slowest, all_forward_ + all_backward_);
    Offer({BoundTerm::kCompute, static_cast<int>(slowest - rates_.worker_slowdown.begin()),
           static_cast<int>(times_.size()) - 1, compute_seconds, 0});
    bound_.compute_seconds = compute_seconds;
    // The seconds of computing before the first gradient of layers 0 to `layer` can leave, counted
    // from the moment when the worker begins what needs all their parameters.
    double chain = all_forward_ + all_backward_;
    const bool is_full = run_.config.exchange().schedule() == ExchangeConfig::FULL;
    // The same from the moment when the worker has all parameters.
    double late_chain = is_full ? all_backward_ : chain;
    for (size_t layer = 0; layer < times_.size(); ++layer) {
      AddLayer(run_.model.layers()[layer]);
      // Under SEQUENTIAL, and with local steps, nothing leaves before everything is computed.
      if (!pushes_at_end_ || layer + 1 == times_.size()) {
        AddTerms(layer, chain);
        if (clips_) AddClippedTerms(layer, late_chain);
      }
      if (!pushes_at_end_) {
        chain -= times_[layer].backward_seconds;
        late_chain -= times_[layer].backward_seconds;
      }
      if (is_full) chain -= times_[layer].forward_seconds;
    }
    SetParts();
    return bound_;
  }

 private:
  void Offer(const BoundTerm& term) {
    if (term.seconds() > bound_.term.seconds()) bound_.term = term;
  }

  // How long a worker computes in an iteration. `chain` is the time of the layers in its first
  // forward and its last backward pass, without slowdown.
  double ComputeSeconds(double slowdown, double chain) const {
    const double pass_seconds = slowdown * (all_forward_ + all_backward_);
    return slowdown * chain + (LocalPasses(run_.config, pass_seconds) - 1) * pass_seconds;
  }

  void AddLayer(const Layer& layer) {
    for (int i = 0; i < layer.tensor_count; ++i) {
      for (const uint32_t id : run_.plan.chunks_of_tensor(layer.first_tensor + i)) {
        const Chunk& chunk = run_.plan.chunks()[id];
        all_.Add(run_, chunk);
        if (IsTrained(chunk)) trained_.Add(run_, chunk);
      }
    }
  }

  bool IsTrained(const Chunk& chunk) const {
    return run_.model.tensors()[chunk.tensor].role == TensorRole::kParameter;
  }

  // The times in which an amount passes a link of a shard, once for a worker.
  double InSeconds(const Amount& amount, int shard) const {
    return amount.pushed.on_shard[shard] / rates_.shard_link[shard];
  }
  double OutSeconds(const Amount& amount, int shard) const {
    return amount.pulled.on_shard[shard] / rates_.shard_link[shard];
  }
  // The time in which a shard takes gradients in, once for a worker.
  double TakeInSeconds(const Amount& amount, int shard) const {
    return std::max(InSeconds(amount, shard),
                    amount.pushed.on_shard[shard] / rates_.shard_processing[shard]);
  }
  // The times in which a worker pushes and pulls an amount, if it is alone.
  double PushSeconds(const Amount& amount, int rank) const {
    double seconds = amount.pushed.all / rates_.worker_link[rank];
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      seconds = std::max(seconds, InSeconds(amount, shard));
    }
    return seconds;
  }
  double PullSeconds(const Amount& amount, int rank) const {
    double seconds = amount.pulled.all / rates_.worker_link[rank];
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      seconds = std::max(seconds, OutSeconds(amount, shard));
    }
    return seconds;
  }

  void AddTerms(int layer, double chain) {
    const double compute_seconds = is_sync_ ? ComputeSeconds(fastest_, chain) : 0;
    const int workers = rates_.worker_link.size();
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      Offer({BoundTerm::kShardIn, shard, layer, compute_seconds,
             workers * TakeInSeconds(all_, shard)});
      Offer(
          {BoundTerm::kShardOut, shard, layer, compute_seconds, workers * OutSeconds(all_, shard)});
    }
    for (int rank = 0; rank < workers; ++rank) {
      const double push = PushSeconds(all_, rank);
      const double pull = PullSeconds(all_, rank);
      Offer({BoundTerm::kWorkerLink, rank, layer,
             ComputeSeconds(rates_.worker_slowdown[rank], chain),
             is_sequential_ ? push + pull : std::max(push, pull)});
    }
  }

  // No parameter leaves a shard before every gradient has come to its own, so that no pull overlaps
  // with a push.
  void AddClippedTerms(int layer, double chain) {
    const int workers = rates_.worker_link.size();
    double shortest_push = std::numeric_limits<double>::infinity();
    double shortest_pull = std::numeric_limits<double>::infinity();
    for (int rank = 0; rank < workers; ++rank) {
      const double push = PushSeconds(trained_, rank);
      const double pull = PullSeconds(whole_, rank);
      shortest_push = std::min(shortest_push, push);
      shortest_pull = std::min(shortest_pull, pull);
      Offer({BoundTerm::kWorkerLink, rank, layer,
             ComputeSeconds(rates_.worker_slowdown[rank], chain), push + pull});
    }
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      Offer({BoundTerm::kShardIn, shard, layer, ComputeSeconds(fastest_, chain),
             shortest_pull + workers * TakeInSeconds(trained_, shard)});
      Offer({BoundTerm::kShardOut, shard, layer, ComputeSeconds(fastest_, chain),
             shortest_push + workers * OutSeconds(whole_, shard)});
    }
  }

  // REQUIRES: all layers have been added.
  void SetParts() {
    const double slowest_link =
        *std::min_element(rates_.worker_link.begin(), rates_.worker_link.end());
    const int workers = rates_.worker_link.size();
    bound_.push_seconds = all_.pushed.all / slowest_link;
    bound_.pull_seconds = all_.pulled.all / slowest_link;
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      bound_.push_seconds = std::max(bound_.push_seconds, workers * TakeInSeconds(all_, shard));
      bound_.pull_seconds = std::max(bound_.pull_seconds, workers * OutSeconds(all_, shard));
    }
    bound_.in_step_seconds = bound_.compute_seconds + bound_.push_seconds + bound_.pull_seconds;
  }

  const PlannedRun& run_;
  const ClusterRates& rates_;
  const absl::Span<const LayerTime> times_;
  const bool is_sequential_;
  const bool pushes_at_end_;
  const bool is_sync_;
  const bool clips_;
  const double fastest_;  // the smallest slowdown
  double all_forward_ = 0;
  double all_backward_ = 0;
  // What AddLayer has counted of the layers so far, and what of that is clipped.
  Amount all_;
  Amount trained_;
  Amount whole_;  // of all layers, what is clipped
  Bound bound_;
};

}  // namespace

Bound BoundOf(const PlannedRun& run, const ClusterRates& rates,
              absl::Span<const LayerTime> layer_times) {
  return BoundTerms(run, rates, layer_times).Get();
}

}  // namespace evenshard
