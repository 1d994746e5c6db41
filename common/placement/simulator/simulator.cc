// The steps of an iteration:
//   1. A worker computes its layers forward and then backward. Under FULL the forward pass of a
//      layer begins when its parameters are back. Gradients leave as the schedule says.
//   2. The push fabric carries the chunks to the shards.
//   3. A shard adds chunks up at its own rate, and answers each when the update policy says so.
//   With
//      clipping by norm no parameter is answered before the whole gradient is added up everywhere.
//   4. The pull fabric carries the parameters back. A worker's iteration ends when it has them all.

#include "common/placement/simulator/simulator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include "common/config/config_contract.h"
#include "common/placement/simulator/busy_times.h"
#include "common/placement/simulator/event_queue.h"
#include "common/placement/simulator/fabric.h"
#include "common/placement/simulator/representatives.h"
#include "common/placement/simulator/worker_model.h"
#include "common/placement/tensor_encoding.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

class Cluster final : private EventQueue::Target, private WorkerModel::Network {
 public:
  Cluster(const PlannedRun& run, const ClusterRates& rates, absl::Span<const LayerTime> layer_times,
          const SimulationOptions& options)
      : plan_(run.plan),
        is_sync_(IsSynchronous(run.config.update())),
        staleness_(run.config.update().policy() == Update::SSP ? run.config.update().staleness()
                                                               : std::numeric_limits<int>::max()),
        clipped_(ClippedChunks(run)),
        clipped_count_(std::count(clipped_.begin(), clipped_.end(), true)),
        iterations_(options.iterations),
        timeline_bins_(options.timeline_bins),
        rates_(rates),
        representatives_(RepresentativesOf(rates, options.representatives)),
        gradient_bytes_(ChunkBytes(run, GradientEncodingOf)),
        parameter_bytes_(ChunkBytes(run, AnswerEncodingOf)),
        layers_(run, layer_times),
        shards_(run.plan.shards()),
        pushes_({.source_rates = WorkerLinks(),
                 .destination_rates = rates.shard_link,
                 .source_members = representatives_.members,
                 .destination_members = std::vector<double>(shards_.size(), 1),
                 .chunk_bytes = gradient_bytes_,
                 .window = run.config.limits().connections(),
                 .lead_bytes = LeadBytes(run.config),
                 .delivered = [this](int worker, int shard,
                                     uint32_t chunk) { TakeIn(worker, shard, chunk); },
                 .destination_busy = Recorder(&Shard::busy_in)},
                &events_),
        pulls_({.source_rates = rates.shard_link,
                .destination_rates = WorkerLinks(),
                .source_members = std::vector<double>(shards_.size(), 1),
                .destination_members = representatives_.members,
                .chunk_bytes = parameter_bytes_,
                .window = run.config.limits().connections(),
                .by_priority = layers_.schedule == ExchangeConfig::FULL,
                .delivered =
                    [this](int shard, int worker, uint32_t chunk) {
                      Count(worker, parameter_bytes_[chunk],
                            &simulation_.shard_payload[shard].bytes_out);
                      workers_[worker].Answered(chunk);
                    },
                .source_busy = Recorder(&Shard::busy_out)},
               &events_),
        gradients_of_chunk_(plan_.chunks().size()),
        ended_(options.iterations),
        end_seconds_(options.iterations) {
    simulation_.shard_payload.resize(run.plan.shards());
    WorkerModel::Network* const network = this;
    for (const int rank : representatives_.ranks) {
      workers_.emplace_back(layers_, workers_.size(), rates.worker_slowdown[rank], &events_,
                            network);
    }
    if (!is_sync_) {
      pushes_of_chunk_.assign(plan_.chunks().size(), std::vector<Pushes>(workers_.size()));
    }
  }

  Simulation Run() {
    for (WorkerModel& worker : workers_) worker.Start();
    while (ended_.back() < static_cast<int>(workers_.size()) && events_.RunNext()) {
    }
    std::adjacent_difference(end_seconds_.begin(), end_seconds_.end(),
                             std::back_inserter(simulation_.iteration_seconds));
    for (size_t i = 0; i < shards_.size(); ++i) {
      simulation_.shard_links.push_back({pushes_.destination_bytes()[i], pulls_.source_bytes()[i]});
    }
    for (const int worker : representatives_.of_rank) {
      simulation_.worker_links.push_back(
          {pulls_.destination_bytes()[worker], pushes_.source_bytes()[worker]});
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

  // A shard keeps workers abreast unless it has to add gradients in the order of ranks, for which
  // it holds those that are early.
  static double LeadBytes(const ClusterConfig& config) {
    if (!IsSynchronous(config.update()) || config.update().deterministic()) {
      return std::numeric_limits<double>::infinity();
    }
    const int64_t elements = config.limits().lead_bytes() / static_cast<int64_t>(sizeof(float));
    return EncodedBytes(config.exchange().gradient_encoding(), elements);
  }

  std::vector<double> WorkerLinks() const {
    std::vector<double> rates;
    for (const int rank : representatives_.ranks) rates.push_back(rates_.worker_link[rank]);
    return rates;
  }

  Fabric::BusyCallback Recorder(BusyTimes Shard::*times) {
    if (timeline_bins_ == 0) return nullptr;
    return [this, times](int shard, double begin, double end) {
      (shards_[shard].*times).Add(begin, end);
    };
  }

  void SetTimeline() {
    const double end = end_seconds_.back();
    const double begin = end - simulation_.iteration_seconds.back();
    simulation_.timeline = {begin, (end - begin) / timeline_bins_, {}};
    for (const Shard& shard : shards_) {
      simulation_.timeline.shards.push_back({shard.busy_in.Fractions(begin, end, timeline_bins_),
                                             shard.busy_out.Fractions(begin, end, timeline_bins_)});
    }
  }

  // Buffers travel only when they change.
  static std::vector<double> ChunkBytes(const PlannedRun& run,
                                        Encoding (*encoding_of)(const ExchangeConfig&,
                                                                const Tensor&)) {
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
  static std::vector<bool> ClippedChunks(const PlannedRun& run) {
    std::vector<bool> clipped;
    for (const Chunk& chunk : run.plan.chunks()) {
      clipped.push_back(ClipsMean(run.config) &&
                        run.model.tensors()[chunk.tensor].role == TensorRole::kParameter);
    }
    return clipped;
  }

  void Count(int worker, double bytes, double* sum) {
    if (workers_[worker].iteration() < iterations_) {
      *sum += bytes * representatives_.members[worker];
    }
  }

  // The functions of WorkerModel::Network.
  void Push(int worker, uint32_t chunk) override {
    pushes_.Send(worker, plan_.chunks()[chunk].shard, chunk);
  }
  void Prioritise(int worker) override { pushes_.Prioritise(worker); }
  void Reply(int worker, uint32_t chunk) override {
    pulls_.Send(plan_.chunks()[chunk].shard, worker, chunk);
  }
  bool Ended(int iteration) override {
    if (iteration < iterations_ && ++ended_[iteration] == static_cast<int>(workers_.size())) {
      end_seconds_[iteration] = events_.now();
    }
    return !is_sync_ || iteration + 1 < iterations_;
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
    if (!is_sync_) return AnswerWithinBound(gradient.chunk, gradient.worker);
    int& gradients = gradients_of_chunk_[gradient.chunk];
    if (++gradients < static_cast<int>(workers_.size())) return;
    gradients = 0;
    if (clipped_[gradient.chunk]) {
      waiting_.push_back(gradient.chunk);
      if (waiting_.size() < clipped_count_) return;
      for (const uint32_t chunk : std::exchange(waiting_, {})) ReplyToAll(chunk);
    } else {
      ReplyToAll(gradient.chunk);
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

  // Constant after construction.
  const Plan& plan_;
  const bool is_sync_;
  const int staleness_;
  const std::vector<bool> clipped_;  // by chunk
  const size_t clipped_count_;
  const int iterations_;
  const int timeline_bins_;
  const ClusterRates& rates_;
  const Representatives representatives_;
  const std::vector<double> gradient_bytes_;  // by chunk
  const std::vector<double> parameter_bytes_;
  const WorkerModel::Layers layers_;

  EventQueue events_;
  std::vector<Shard> shards_;
  Fabric pushes_;
  Fabric pulls_;
  std::deque<WorkerModel> workers_;      // the representatives; a deque, because they must not move
  std::vector<int> gradients_of_chunk_;  // by how many of workers_, in this iteration; SYNC only
  std::vector<std::vector<Pushes>> pushes_of_chunk_;  // by worker; ASYNC and SSP only
  std::vector<uint32_t> waiting_;    // chunks that are added up and wait for the norm
  std::vector<int> ended_;           // number of workers that ended each iteration
  std::vector<double> end_seconds_;  // when the last of them did
  Simulation simulation_;
};

// The chunks that are pushed in a simulation, about. They take 0.06 s of a processor.
constexpr int64_t kPushes = 96 << 10;

// Whether all iterations soon take the same time. Otherwise, under ASYNC and under SEQUENTIAL, the
// workers begin abreast and fall out of step, which may take tens of iterations.
bool StaysInStep(const ClusterConfig& config) {
  return IsSynchronous(config.update()) &&
         config.exchange().schedule() != ExchangeConfig::SEQUENTIAL;
}

SimulationOptions OptionsFor(const PlannedRun& run) {
  constexpr int64_t kLeast = 4;
  constexpr int64_t kMostWorkers = 8;
  constexpr int64_t kMostIterations = 64;
  const int64_t chunks = run.plan.chunks().size();
  const int64_t workers = std::min<int64_t>(run.config.workers(), kMostWorkers);
  const int64_t iterations = std::clamp(kPushes / (chunks * workers), kLeast,
                                        StaysInStep(run.config) ? kLeast : kMostIterations);
  const int64_t representatives = std::clamp(kPushes / (chunks * iterations), kLeast, kMostWorkers);
  return {.iterations = static_cast<int>(iterations),
          .representatives = static_cast<int>(representatives)};
}

}  // namespace

double Simulation::seconds() const {
  return std::accumulate(iteration_seconds.begin(), iteration_seconds.end(), 0.0);
}

double Simulation::steady_seconds() const {
  std::vector<double> steady(iteration_seconds.begin() + (iteration_seconds.size() > 1 ? 1 : 0),
                             iteration_seconds.end());
  std::sort(steady.begin(), steady.end());
  return (steady[(steady.size() - 1) / 2] + steady[steady.size() / 2]) / 2;
}

bool Simulation::is_steady() const {
  constexpr double kTolerance = 0.01;
  const size_t count = iteration_seconds.size();
  return count >= 2 && std::abs(iteration_seconds[count - 1] - iteration_seconds[count - 2]) <=
                           kTolerance * iteration_seconds[count - 1];
}

Simulation Simulate(const PlannedRun& run, const ClusterRates& rates,
                    absl::Span<const LayerTime> layer_times, const SimulationOptions& options) {
  return Cluster(run, rates, layer_times, options).Run();
}

double PredictIterationSeconds(const PlannedRun& run, const ClusterRates& rates,
                               absl::Span<const LayerTime> layer_times) {
  const Simulation simulation = Simulate(run, rates, layer_times, OptionsFor(run));
  const std::vector<double>& each = simulation.iteration_seconds;
  const auto begin = each.begin() + (StaysInStep(run.config) ? 1 : each.size() / 2);
  return std::accumulate(begin, each.end(), 0.0) / static_cast<double>(each.end() - begin);
}

}  // namespace evenshard
