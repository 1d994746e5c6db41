#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_WORKER_MODEL_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_WORKER_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/network/event_queue.h"
#include "common/placement/simulator/planned_run.h"

namespace evenshard {

// Models one worker: when it computes each layer, when its gradients leave, and what it waits for.
// What is exchanged at a time is a chunk of a plan, or a slot of a ring; both are called units
// here. A unit leaves when the gradients of all its layers exist, and a layer is back when all its
// units are.
//
//   forward ---> backward ---> SEQUENTIAL: push all; shards reply once all have arrived
//      ^            |          BACKWARD, FULL: push each layer when its gradient is computed
//      |            v
//      +------- SEQUENTIAL, BACKWARD: wait for all parameters
//               FULL: go on; the forward pass waits for the parameters of each layer
//
// With local steps an iteration is a round: between its first forward and its last backward pass
// the worker computes alone, and it pushes all layers at the end, also those of several fragments.
//
// Not thread-safe.
class WorkerModel final : private EventQueue::Target {
 public:
  // What the workers of a cluster have in common.
  struct Layers {
    struct Range {
      int first;
      int last;
    };
    // For a run with shards: the units are the plan's chunks.
    Layers(const PlannedRun& run, absl::Span<const LayerTime> layer_times);
    // The units have the given layers.
    Layers(const PlannedRun& run, absl::Span<const LayerTime> layer_times,
           std::vector<Range> units_layers);

    const ClusterConfig* config;
    ExchangeConfig::Schedule schedule;
    bool pushes_at_end;
    std::vector<LayerTime> times;
    double pass_seconds = 0;                     // all layers
    std::vector<std::vector<uint32_t>> leaving;  // by layer: the units whose first layer it is
    std::vector<size_t> units;                   // by layer: how many units have parts of it
    std::vector<Range> of_unit;                  // the layers of each unit
  };

  class Network {
   public:
    virtual ~Network() = default;
    // Sends a unit of a worker's gradient.
    virtual void Push(int worker, uint32_t unit) = 0;
    // The worker has pushed all units of an iteration. Those that have not left go in the order in
    // which the next forward pass needs them. FULL only.
    virtual void Prioritise(int worker) = 0;
    // Sends the shard's answer to a chunk to a worker.
    virtual void Reply(int worker, uint32_t chunk) = 0;
    // A worker has all parameters of its iteration back. Returns whether it does another one.
    virtual bool Ended(int worker, int iteration) = 0;
  };

  // `slowdown` multiplies layer times. `layers`, `events` and `network` must outlive the worker.
  WorkerModel(const Layers& layers, int rank, double slowdown, EventQueue* events,
              Network* network);

  void Start() { Advance(); }

  // The iteration whose gradients are being exchanged, or were last. It is -1 before the first.
  int iteration() const { return iteration_; }

  // A chunk of this worker has reached its shard.
  void Pushed();
  // A shard can answer this worker's chunk.
  void Reply(uint32_t chunk);
  // The parameters of a unit are there.
  void Answered(uint32_t unit);

 private:
  enum class Phase { kForward, kAlone, kBackward, kAwait };

  void OnEvent(int kind, int index) override;
  // Computes until the worker must wait for the end of a layer or for parameters.
  void Advance();
  void EndLayer();
  void BeginExchange();
  void PushLayer(int layer);
  void EndCompute();

  // Constant after construction.
  const Layers& layers_;
  const int rank_;
  const double slowdown_;
  const double alone_seconds_;  // of the passes in between, with local steps
  EventQueue* const events_;
  Network* const network_;

  Phase phase_ = Phase::kForward;
  int layer_ = 0;  // the layer that is computed or waits to be computed
  bool computing_ = false;
  int iteration_ = -1;
  bool has_next_ = true;   // whether another iteration follows
  size_t unpushed_ = 0;    // this iteration's chunks that have not reached their shard
  size_t unanswered_ = 0;  // this iteration's units that are not back
  std::vector<size_t> layer_unanswered_;
  std::vector<uint32_t> held_replies_;  // held until everything is pushed; SEQUENTIAL only
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_WORKER_MODEL_H_
