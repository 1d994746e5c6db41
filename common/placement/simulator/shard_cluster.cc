// The steps of an iteration:
//   1. A worker computes its layers forward and then backward. Under FULL the forward pass of a
//      layer begins when its parameters are back. Gradients leave as the schedule says.
//   2. The network carries the chunks to the shards.
//   3. A shard adds chunks up at its own rate, and answers each when the update policy says so.
//      With clipping by norm no parameter is answered before the whole gradient is added up
//      everywhere.
//   4. The network carries the parameters back. A worker's iteration ends when it has them all.

#include "common/placement/simulator/shard_cluster.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "common/config/config_contract.h"
#include "common/placement/plan/tensor_encoding.h"
#include "common/placement/simulator/busy_times.h"
#include "common/placement/simulator/iteration_log.h"
#include "common/placement/simulator/local_passes.h"
#include "common/placement/simulator/network/event_queue.h"
#include "common/placement/simulator/quorum_rule.h"
#include "common/placement/simulator/representatives.h"
#include "common/placement/simulator/shard_network.h"
#include "common/placement/simulator/worker_model.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// A shard keeps workers abreast unless it has to add gradients in the order of ranks, for which it
// holds those that are early.
double LeadBytes(const ClusterConfig& config) {
  if (config.update().policy() != Update::SYNC || config.update().deterministic()) {
    return std::numeric_limits<double>::infinity();
  }
  const int64_t elements = config.limits().lead_bytes() / static_cast<int64_t>(sizeof(float));
  return EncodedBytes(config.exchange().gradient_encoding(), elements);
}

// Buffers travel only when they change.
std::vector<double> ChunkBytes(const PlannedRun& run,
                               Encoding (*encoding_of)(const ExchangeConfig&, const Tensor&)) {
  std::vector<double> bytes;
  for (const Chunk& chunk : run.plan.chunks()) {
    const Tensor& tensor = run.model.tensors()[chunk.tensor];
    const Encoding encoding = encoding_of(run.config.exchange(), tensor);
    const bool is_buffer = tensor.role == TensorRole::kBuffer;
    bytes.push_back(is_buffer ? 0 : EncodedBytes(encoding, chunk.size));
  }
  return bytes;
}

// By chunk: whether it waits for the norm of the gradient.
std::vector<bool> ClippedChunks(const PlannedRun& run) {
  std::vector<bool> clipped;
  for (const Chunk& chunk : run.plan.chunks()) {
    clipped.push_back(ClipsMean(run.config) &&
                      run.model.tensors()[chunk.tensor].role == TensorRole::kParameter);
  }
  return clipped;
}

class Cluster final : private EventQueue::Target, private WorkerModel::Network {
 public:
  Cluster(const PlannedRun& run, const ClusterRates& rates, absl::Span<const LayerTime> layer_times,
          const SimulationOptions& options)
      : plan_(run.plan),
        policy_(run.config.update().policy()),
        staleness_(policy_ == Update::SSP ? run.config.update().staleness()
                                          : std::numeric_limits<int>::max()),
        clipped_(ClippedChunks(run)),
        clipped_count_(std::count(clipped_.begin(), clipped_.end(), true)),
        timeline_bins_(options.timeline_bins),
        rates_(rates),
        representatives_(RepresentativesOf(rates, options.representatives,
                                           run.config.colocated() ? run.plan.shards() : 0)),
        gradient_bytes_(ChunkBytes(run, GradientEncodingOf)),
        parameter_bytes_(ChunkBytes(run, AnswerEncodingOf)),
        layers_(run, layer_times),
        shards_(run.plan.shards()),
        network_({.rates = &rates,
                  .representatives = &representatives_,
                  .colocated = run.config.colocated(),
                  .gradient_bytes = gradient_bytes_,
                  .parameter_bytes = parameter_bytes_,
                  .window = run.config.limits().connections(),
                  .lead_bytes = LeadBytes(run.config),
                  .replies_by_priority = layers_.schedule == ExchangeConfig::FULL,
                  .pushed = [this](int worker, int shard,
                                   uint32_t chunk) { TakeIn(worker, shard, chunk); },
                  .replied =
                      [this](int worker, int shard, uint32_t chunk) {
                        Count(worker, parameter_bytes_[chunk],
                              &simulation_.shard_payload[shard].bytes_out);
                        workers_[worker].Answered(chunk);
                      },
                  .shard_in = Recorder(&Shard::busy_in),
                  .shard_out = Recorder(&Shard::busy_out)},
                 &events_),
        log_(options.iterations),
        last_end_(representatives_.ranks.size()),
        unarrived_(representatives_.ranks.size(), plan_.chunks().size()),
        turns_(representatives_.ranks.size()),
        gradients_of_chunk_(plan_.chunks().size()) {
    simulation_.shard_payload.resize(run.plan.shards());
    WorkerModel::Network* const network = this;
    for (const int rank : representatives_.ranks) {
      const double slowdown = rates.worker_slowdown[rank];
      batches_.push_back(representatives_.members[workers_.size()] *
                         LocalPasses(run.config, slowdown * layers_.pass_seconds));
      workers_.emplace_back(layers_, workers_.size(), slowdown, &events_, network);
    }
    if (policy_ == Update::QUORUM) {
      quorum_.emplace(run.config.update(), representatives_.members, &events_,
                      [this](int update, const std::vector<int>& of) { Decided(update, of); });
    } else {
      for (int i = 0; i < log_.iterations(); ++i) log_.Expect(i, workers_.size());
    }
    if (!IsSynchronous(run.config.update())) {
      pushes_of_chunk_.assign(plan_.chunks().size(), std::vector<Pushes>(workers_.size()));
    }
  }

  Simulation Run() {
    for (WorkerModel& worker : workers_) worker.Start();
    while (!log_.is_over() && events_.RunNext()) {
    }
    log_.CopyTo(&simulation_);
    for (size_t i = 0; i < shards_.size(); ++i) {
      simulation_.shard_links.push_back(network_.shard_link(i));
    }
    for (const int worker : representatives_.of_rank) {
      simulation_.worker_links.push_back(network_.worker_link(worker));
    }
    if (timeline_bins_ > 0) SetTimeline();
    return std::move(simulation_);
  }

 private:
  // A gradient that a shard has received and not yet added up.
  struct Gradient {
    double time;  // when it will have been added
    int worker;
    uint32_t chunk;
  };
  // A worker's pushes of a chunk.
  struct Pushes {
    int pushed = 0;
    int answered = 0;
  };
  struct Shard {
    double free_at = 0;
    std::deque<Gradient> gradients;
    BusyTimes busy_in;  // with a timeline only
    BusyTimes busy_out;
  };
  // QUORUM: what a worker's iteration comes to.
  struct Turn {
    int update = 0;       // for which it trains
    bool counts = false;  // its gradient is part of the update
    int next = 0;         // the update for which it trains then
  };

  Fabric::BusyCallback Recorder(BusyTimes Shard::*times) {
    if (timeline_bins_ == 0) return nullptr;
    return [this, times](int shard, double begin, double end) {
      (shards_[shard].*times).Add(begin, end);
    };
  }

  void SetTimeline() {
    const double end = simulation_.seconds();
    const double begin = end - simulation_.iteration_seconds.back();
    simulation_.timeline = {begin, (end - begin) / timeline_bins_, {}};
    for (const Shard& shard : shards_) {
      simulation_.timeline.shards.push_back({shard.busy_in.Fractions(begin, end, timeline_bins_),
                                             shard.busy_out.Fractions(begin, end, timeline_bins_)});
    }
  }

  void Count(int worker, double bytes, double* sum) {
    if (workers_[worker].iteration() < log_.iterations()) {
      *sum += bytes * representatives_.members[worker];
    }
  }

  // The functions of WorkerModel::Network.
  void Push(int worker, uint32_t chunk) override {
    network_.Push(worker, plan_.chunks()[chunk].shard, chunk);
  }
  void Prioritise(int worker) override { network_.Prioritise(worker); }
  void Reply(int worker, uint32_t chunk) override {
    network_.Reply(plan_.chunks()[chunk].shard, worker, chunk);
  }
  bool Ended(int worker, int iteration) override {
    if (policy_ == Update::QUORUM) {
      Turn& turn = turns_[worker];
      if (turn.counts) log_.End(turn.update, events_.now(), batches_[worker]);
      turn = {.update = turn.next};
      return true;
    }
    log_.End(iteration, events_.now(), batches_[worker]);
    // A worker that computes nothing, and has all shards on its host, would go on in no time for
    // ever.
    const bool took_time = std::exchange(last_end_[worker], events_.now()) < events_.now();
    return iteration + 1 < log_.iterations() || (policy_ != Update::SYNC && took_time);
  }

  void TakeIn(int worker, int index, uint32_t chunk) {
    Count(worker, gradient_bytes_[chunk], &simulation_.shard_payload[index].bytes_in);
    workers_[worker].Pushed();
    Shard& shard = shards_[index];
    const double bytes = gradient_bytes_[chunk] * representatives_.members[worker];
    shard.free_at = std::max(shard.free_at, events_.now()) + bytes / rates_.shard_processing[index];
    shard.gradients.push_back({shard.free_at, worker, chunk});
    if (shard.gradients.size() == 1) events_.At(shard.free_at, this, 0, index);
  }

  // Called when a shard has added up its first gradient.
  void OnEvent(int, int index) override {
    Shard& shard = shards_[index];
    const Gradient gradient = shard.gradients.front();
    shard.gradients.pop_front();
    if (!shard.gradients.empty()) events_.At(shard.gradients.front().time, this, 0, index);
    switch (policy_) {
      case Update::SYNC:
        return CountForAll(gradient.chunk);
      case Update::QUORUM:
        return CountForQuorum(gradient.worker);
      default:
        return AnswerWithinBound(gradient.chunk, gradient.worker);
    }
  }

  void CountForAll(uint32_t chunk) {
    int& gradients = gradients_of_chunk_[chunk];
    if (++gradients < static_cast<int>(workers_.size())) return;
    gradients = 0;
    if (!clipped_[chunk]) return ReplyToAll(chunk);
    waiting_.push_back(chunk);
    if (waiting_.size() < clipped_count_) return;
    for (const uint32_t each : std::exchange(waiting_, {})) ReplyToAll(each);
  }

  void CountForQuorum(int worker) {
    if (--unarrived_[worker] > 0) return;
    unarrived_[worker] = plan_.chunks().size();
    if (turns_[worker].update == quorum_->update()) return quorum_->Arrived(worker);
    // It came too late, and the worker asks for the parameters of where the run is now.
    turns_[worker].next = quorum_->update();
    ReplyAll(worker);
  }

  void Decided(int update, const std::vector<int>& workers) {
    if (update < log_.iterations()) log_.Expect(update, workers.size());
    for (const int worker : workers) {
      turns_[worker].counts = true;
      turns_[worker].next = update + 1;
      ReplyAll(worker);
    }
  }

  // Under ASYNC and SSP, answers the pushes of a chunk whose workers are not too far ahead of the
  // slowest, after one more push of `worker`.
  void AnswerWithinBound(uint32_t chunk, int worker) {
    std::vector<Pushes>& pushes = pushes_of_chunk_[chunk];
    ++pushes[worker].pushed;
    const auto slowest =
        std::min_element(pushes.begin(), pushes.end(),
                         [](const Pushes& a, const Pushes& b) { return a.pushed < b.pushed; });
    for (size_t i = 0; i < pushes.size(); ++i) {
      if (pushes[i].answered == pushes[i].pushed) continue;
      if (pushes[i].pushed - slowest->pushed > staleness_) continue;
      pushes[i].answered = pushes[i].pushed;
      workers_[i].Reply(chunk);
    }
  }

  void ReplyToAll(uint32_t chunk) {
    for (WorkerModel& worker : workers_) worker.Reply(chunk);
  }

  void ReplyAll(int worker) {
    for (uint32_t chunk = 0; chunk < plan_.chunks().size(); ++chunk) workers_[worker].Reply(chunk);
  }

  // Constant after construction.
  const Plan& plan_;
  const Update::Policy policy_;
  const int staleness_;
  const std::vector<bool> clipped_;  // by chunk
  const size_t clipped_count_;
  const int timeline_bins_;
  const ClusterRates& rates_;
  const Representatives representatives_;
  std::vector<double> batches_;               // in an iteration, by representative
  const std::vector<double> gradient_bytes_;  // by chunk
  const std::vector<double> parameter_bytes_;
  const WorkerModel::Layers layers_;

  EventQueue events_;
  std::vector<Shard> shards_;
  ShardNetwork network_;
  IterationLog log_;
  std::deque<WorkerModel> workers_;   // the representatives; a deque, because they must not move
  std::vector<double> last_end_;      // by worker: when its last iteration ended
  std::optional<QuorumRule> quorum_;  // QUORUM only, as are the next two, by worker
  std::vector<size_t> unarrived_;     // chunks of its gradient
  std::vector<Turn> turns_;
  std::vector<int> gradients_of_chunk_;  // by how many of workers_, in this iteration; SYNC only
  std::vector<std::vector<Pushes>> pushes_of_chunk_;  // by worker; ASYNC and SSP only
  std::vector<uint32_t> waiting_;  // chunks that are added up and wait for the norm
  Simulation simulation_;
};

}  // namespace

Simulation SimulateShards(const PlannedRun& run, const ClusterRates& rates,
                          absl::Span<const LayerTime> layer_times,
                          const SimulationOptions& options) {
  return Cluster(run, rates, layer_times, options).Run();
}

}  // namespace evenshard
