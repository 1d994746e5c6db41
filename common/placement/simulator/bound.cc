// The proof of each term is in docs/experiment.md, "The bound".

#include "common/placement/simulator/bound.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/config/config_contract.h"
#include "common/placement/plan/tensor_encoding.h"
#include "common/placement/simulator/local_passes.h"
#include "common/placement/simulator/ring_bound.h"
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
    if (tensor.role == TensorRole::kBuffer) return;  // moves when it has changed
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
        is_colocated_(run.config.colocated()),
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

  // A worker exchanges nothing through its link with the shard on its host.
  bool IsOnHost(int shard, int rank) const { return is_colocated_ && shard == rank; }
  // How many workers exchange with a shard through its link.
  int Remote() const {
    return static_cast<int>(rates_.worker_link.size()) - (is_colocated_ ? 1 : 0);
  }
  double RemoteBytes(const Bytes& bytes, int rank) const {
    return bytes.all - (is_colocated_ && rank < run_.plan.shards() ? bytes.on_shard[rank] : 0);
  }

  // The times in which an amount passes a link of a shard, once for a worker.
  double InSeconds(const Amount& amount, int shard) const {
    return amount.pushed.on_shard[shard] / rates_.shard_link[shard];
  }
  double OutSeconds(const Amount& amount, int shard) const {
    return amount.pulled.on_shard[shard] / rates_.shard_link[shard];
  }
  // The time in which a shard takes the gradients of all workers in, whatever its link.
  double ProcessingSeconds(const Amount& amount, int shard) const {
    const double workers = rates_.worker_link.size();
    return workers * amount.pushed.on_shard[shard] / rates_.shard_processing[shard];
  }
  // The times in which a worker pushes and pulls an amount, if it is alone.
  double PushSeconds(const Amount& amount, int rank) const {
    double seconds = RemoteBytes(amount.pushed, rank) / rates_.worker_link[rank];
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      if (!IsOnHost(shard, rank)) seconds = std::max(seconds, InSeconds(amount, shard));
    }
    return seconds;
  }
  double PullSeconds(const Amount& amount, int rank) const {
    double seconds = RemoteBytes(amount.pulled, rank) / rates_.worker_link[rank];
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      if (!IsOnHost(shard, rank)) seconds = std::max(seconds, OutSeconds(amount, shard));
    }
    return seconds;
  }

  void AddTerms(int layer, double chain) {
    const double compute_seconds = is_sync_ ? ComputeSeconds(fastest_, chain) : 0;
    const int workers = rates_.worker_link.size();
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      Offer(
          {BoundTerm::kShardIn, shard, layer, compute_seconds, Remote() * InSeconds(all_, shard)});
      Offer({BoundTerm::kShardProcessing, shard, layer, compute_seconds,
             ProcessingSeconds(all_, shard)});
      Offer({BoundTerm::kShardOut, shard, layer, compute_seconds,
             Remote() * OutSeconds(all_, shard)});
    }
    if (is_colocated_) AddHosts(layer, compute_seconds);
    for (int rank = 0; rank < workers; ++rank) {
      const double push = PushSeconds(all_, rank);
      const double pull = PullSeconds(all_, rank);
      Offer({BoundTerm::kWorkerLink, rank, layer,
             ComputeSeconds(rates_.worker_slowdown[rank], chain),
             is_sequential_ ? push + pull : std::max(push, pull)});
    }
  }

  // What a worker and the shard on its host pass through their link.
  void AddHosts(int layer, double compute_seconds) {
    BoundTerm least_in = {BoundTerm::kHostIn, 0, layer, compute_seconds,
                          std::numeric_limits<double>::infinity()};
    for (int rank = 0; rank < static_cast<int>(rates_.worker_link.size()); ++rank) {
      const bool has_shard = rank < run_.plan.shards();
      double in = RemoteBytes(all_.pulled, rank);
      if (has_shard) in += Remote() * all_.pushed.on_shard[rank];
      in /= rates_.worker_link[rank];
      if (has_shard) {
        const double out = RemoteBytes(all_.pushed, rank) + Remote() * all_.pulled.on_shard[rank];
        Offer({BoundTerm::kHostIn, rank, layer, 0, in});
        Offer({BoundTerm::kHostOut, rank, layer, 0, out / rates_.worker_link[rank]});
      }
      if (in < least_in.transfer_seconds) {
        least_in.kind = has_shard ? BoundTerm::kHostIn : BoundTerm::kWorkerLink;
        least_in.machine = rank;
        least_in.transfer_seconds = in;
      }
    }
    // The worker that is first to have all parameters has had no less come in since the first push.
    Offer(least_in);
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
             shortest_pull + Remote() * InSeconds(trained_, shard)});
      Offer({BoundTerm::kShardProcessing, shard, layer, ComputeSeconds(fastest_, chain),
             shortest_pull + ProcessingSeconds(trained_, shard)});
      Offer({BoundTerm::kShardOut, shard, layer, ComputeSeconds(fastest_, chain),
             shortest_push + Remote() * OutSeconds(whole_, shard)});
    }
  }

  // REQUIRES: all layers have been added.
  void SetParts() {
    for (int rank = 0; rank < static_cast<int>(rates_.worker_link.size()); ++rank) {
      const double link = rates_.worker_link[rank];
      bound_.push_seconds = std::max(bound_.push_seconds, RemoteBytes(all_.pushed, rank) / link);
      bound_.pull_seconds = std::max(bound_.pull_seconds, RemoteBytes(all_.pulled, rank) / link);
    }
    for (int shard = 0; shard < run_.plan.shards(); ++shard) {
      bound_.push_seconds = std::max(
          {bound_.push_seconds, Remote() * InSeconds(all_, shard), ProcessingSeconds(all_, shard)});
      bound_.pull_seconds = std::max(bound_.pull_seconds, Remote() * OutSeconds(all_, shard));
    }
    bound_.in_step_seconds = bound_.compute_seconds + bound_.push_seconds + bound_.pull_seconds;
  }

  const PlannedRun& run_;
  const ClusterRates& rates_;
  const absl::Span<const LayerTime> times_;
  const bool is_sequential_;
  const bool pushes_at_end_;
  const bool is_colocated_;
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
  return run.ring != nullptr ? RingBoundOf(run, rates, layer_times)
                             : BoundTerms(run, rates, layer_times).Get();
}

}  // namespace evenshard
