// The steps of an iteration, as in worker/ring/core/ring_round.h:
//   1. A worker computes its layers. A slot, which has a segment of every part of a bucket, is
//      released when the gradients of its layers exist.
//   2. Each of its segments has its own way round the ring. Its sum begins at one worker, and each
//      further one adds its gradient once it has released the slot too.
//   3. The last one applies the optimizer. With clipping by norm that waits for all sums.
//   4. The parameters go round in the same way. A worker has a slot back when it has all segments.
//
// In a real bucket a part has the front layers, and another one the last. Here each has an equal
// share of all of them, so that a bucket's slots have one stretch of its layers after another.
//
// In a ring of equal workers all do the same at the same time, each with another part. Then two
// workers that send to each other are simulated for all, and a segment passes between them as often
// as it goes from worker to worker in the ring.

#include "common/placement/simulator/ring_cluster.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "common/config/config_contract.h"
#include "common/placement/simulator/iteration_log.h"
#include "common/placement/simulator/local_passes.h"
#include "common/placement/simulator/network/event_queue.h"
#include "common/placement/simulator/network/fabric.h"
#include "common/placement/simulator/worker_model.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

bool AreEqual(const std::vector<double>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// One of the segments of every part of a bucket.
struct Slot {
  WorkerModel::Layers::Range layers = {};
  double sum_bytes = 0;  // of one segment
  double parameter_bytes = 0;
};

// The layers of a bucket that have floats of [begin, end).
WorkerModel::Layers::Range LayersIn(const Model& model, const RingBucket& bucket, double begin,
                                    double end) {
  WorkerModel::Layers::Range range = {bucket.first_layer, bucket.first_layer};
  for (int layer = bucket.first_layer; layer <= bucket.last_layer; ++layer) {
    if (model.layers()[layer].tensor_count == 0) continue;
    const auto layer_begin = static_cast<double>(model.RangeOf(model.layers()[layer]).begin);
    if (layer_begin <= begin) range.first = layer;
    if (layer_begin < end) range.last = layer;
  }
  return range;
}

// The slots of all buckets, in the order in which buckets leave.
std::vector<Slot> SlotsOf(const PlannedRun& run) {
  const int workers = run.config.workers();
  const int64_t most = run.config.limits().chunk_bytes() / static_cast<int64_t>(sizeof(float));
  std::vector<Slot> slots;
  for (const RingBucket& bucket : run.ring->buckets()) {
    double begin = static_cast<double>(bucket.begin);
    double left = static_cast<double>(bucket.size) / workers;  // of each part
    while (left > 0) {
      const double size = std::min(left, static_cast<double>(most));
      const auto bytes = [size](Encoding encoding) {
        return size / kAlignment * static_cast<double>(EncodedBytes(encoding, kAlignment));
      };
      slots.push_back({.layers = LayersIn(run.model, bucket, begin, begin + size * workers),
                       .sum_bytes = bytes(run.config.exchange().gradient_encoding()),
                       .parameter_bytes = bytes(run.config.exchange().parameter_encoding())});
      begin += size * workers;
      left -= size;
    }
  }
  return slots;
}

std::vector<WorkerModel::Layers::Range> LayersOf(const std::vector<Slot>& slots) {
  std::vector<WorkerModel::Layers::Range> layers;
  for (const Slot& slot : slots) layers.push_back(slot.layers);
  return layers;
}

class Cluster final : private WorkerModel::Network {
 public:
  Cluster(const PlannedRun& run, const ClusterRates& rates, absl::Span<const LayerTime> layer_times,
          const SimulationOptions& options)
      : ring_(run.config.workers()),
        simulated_(AreEqual(rates.worker_link) && AreEqual(rates.worker_slowdown) ? 2 : ring_),
        clips_(ClipsMean(run.config)),
        slots_(SlotsOf(run)),
        layers_(run, layer_times, LayersOf(slots_)),
        fabric_(Links(run, rates), &events_),
        log_(options.iterations),
        states_(simulated_) {
    WorkerModel::Network* const network = this;
    for (int i = 0; i < simulated_; ++i) {
      State& state = states_[i];
      state.slots.resize(slots_.size());
      state.sums_received.resize(slots_.size() * ring_);
      const double slowdown = rates.worker_slowdown[i];
      state.batches = static_cast<double>(ring_) / simulated_ *
                      LocalPasses(run.config, slowdown * layers_.pass_seconds);
      workers_.emplace_back(layers_, i, slowdown, &events_, network);
    }
    for (int i = 0; i < log_.iterations(); ++i) log_.Expect(i, simulated_);
  }

  Simulation Run() {
    for (WorkerModel& worker : workers_) worker.Start();
    while (!log_.is_over() && events_.RunNext()) {
    }
    Simulation simulation;
    log_.CopyTo(&simulation);
    for (int rank = 0; rank < ring_; ++rank) {
      const int worker = rank % simulated_;
      simulation.worker_links.push_back(
          {fabric_.destination_bytes()[worker], fabric_.source_bytes()[worker]});
    }
    return simulation;
  }

 private:
  // A segment on its way: the slot, and by how many workers it has been passed on.
  struct Token {
    uint32_t slot;
    uint32_t hops;
  };
  struct SlotState {
    uint32_t released = 0;  // in how many iterations
    int missing = 0;        // segments whose parameters are not there
    std::vector<Token> held;
  };
  struct State {
    std::vector<SlotState> slots;
    std::vector<uint32_t> sums_received;  // by token: in how many iterations
    double batches = 0;                   // in an iteration, of the workers for which it stands
  };

  // A source is a worker, and each has two destinations, one for sums and one for parameters, which
  // share its link as streams do.
  Fabric::Options Links(const PlannedRun& run, const ClusterRates& rates) {
    const std::vector<double> links(rates.worker_link.begin(),
                                    rates.worker_link.begin() + simulated_);
    std::vector<int> link_of;
    for (int i = 0; i < 2 * simulated_; ++i) link_of.push_back(i % simulated_);
    std::vector<double> bytes(2 * slots_.size() * ring_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      for (int hops = 0; hops < ring_; ++hops) {
        const Token token = {static_cast<uint32_t>(i), static_cast<uint32_t>(hops)};
        bytes[SumId(token)] = slots_[i].sum_bytes;
        bytes[ParametersId(token)] = slots_[i].parameter_bytes;
      }
    }
    return {.source_rates = links,
            .destination_rates = links,
            .source_members = std::vector<double>(simulated_, 1),
            .destination_members = std::vector<double>(2 * simulated_, 1),
            .destination_links = std::move(link_of),
            .chunk_bytes = std::move(bytes),
            .window = run.config.limits().connections(),
            .latency_seconds = rates.latency_seconds,
            .delivered = [this](int, int destination, uint32_t id) { Receive(destination, id); }};
  }

  uint32_t SumId(const Token& token) const { return token.slot * ring_ + token.hops; }
  uint32_t ParametersId(const Token& token) const {
    return static_cast<uint32_t>(slots_.size()) * ring_ + SumId(token);
  }
  int Successor(int worker) const { return (worker + 1) % simulated_; }
  bool IsLast(const Token& token) const { return token.hops == static_cast<uint32_t>(ring_) - 1; }

  void SendSum(int worker, const Token& token) {
    fabric_.Send(worker, Successor(worker), SumId(token));
  }
  void SendParameters(int worker, const Token& token) {
    fabric_.Send(worker, simulated_ + Successor(worker), ParametersId(token));
  }

  void Receive(int destination, uint32_t id) {
    const bool is_sum = destination < simulated_;
    const int worker = destination % simulated_;
    if (!is_sum) id -= ParametersId({0, 0});
    const Token token = {id / ring_, id % ring_ + 1};
    if (is_sum) {
      TakeSum(worker, token);
    } else {
      TakeParameters(worker, token);
    }
  }

  // The functions of WorkerModel::Network.
  void Push(int worker, uint32_t index) override {
    SlotState& slot = states_[worker].slots[index];
    ++slot.released;
    slot.missing = ring_;
    SendSum(worker, {index, 0});
    for (const Token& token : std::exchange(slot.held, {})) PassSum(worker, token);
  }
  void Prioritise(int) override {}       // segments stay in their order
  void Reply(int, uint32_t) override {}  // there are no shards
  bool Ended(int worker, int iteration) override {
    log_.End(iteration, events_.now(), states_[worker].batches);
    return iteration + 1 < log_.iterations();
  }

  // A predecessor may be ahead, by less than an iteration.
  void TakeSum(int worker, const Token& token) {
    State& state = states_[worker];
    SlotState& slot = state.slots[token.slot];
    if (slot.released > state.sums_received[SumId(token)]++) {
      PassSum(worker, token);
    } else {
      slot.held.push_back(token);
    }
  }

  void PassSum(int worker, const Token& token) {
    if (!IsLast(token)) return SendSum(worker, token);
    if (!clips_) return TakeParameters(worker, {token.slot, 0});
    waiting_.push_back({worker, token.slot});
    if (waiting_.size() < slots_.size() * simulated_) return;
    for (const auto& [owner, slot] : std::exchange(waiting_, {})) TakeParameters(owner, {slot, 0});
  }

  void TakeParameters(int worker, const Token& token) {
    if (!IsLast(token)) SendParameters(worker, token);
    if (--states_[worker].slots[token.slot].missing == 0) workers_[worker].Answered(token.slot);
  }

  // Constant after construction.
  const int ring_;       // how many workers the ring has
  const int simulated_;  // how many of them are simulated
  const bool clips_;
  const std::vector<Slot> slots_;
  const WorkerModel::Layers layers_;

  EventQueue events_;
  Fabric fabric_;
  IterationLog log_;
  std::vector<State> states_;
  std::deque<WorkerModel> workers_;
  std::vector<std::pair<int, uint32_t>> waiting_;  // sums that wait for the norm: worker and slot
};

}  // namespace

Simulation SimulateRing(const PlannedRun& run, const ClusterRates& rates,
                        absl::Span<const LayerTime> layer_times, const SimulationOptions& options) {
  return Cluster(run, rates, layer_times, options).Run();
}

}  // namespace evenshard
