#ifndef PS_EXPERIMENTS_SIMULATOR_WORKER_MODEL_H_
#define PS_EXPERIMENTS_SIMULATOR_WORKER_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/config.h"
#include "common/device_profile.h"
#include "experiments/simulator/event_queue.h"

namespace ps {

// One worker: when it computes which layer, when its chunks leave, and what it waits for.
//
//   forward ---> backward ---> SEQUENTIAL: push all; replies come once all are there
//      ^            |          the others: push each layer as it is computed
//      |            v
//      +------- all parameters back; under FULL at once, and forward waits for each layer's
//
// Not thread-safe.
class WorkerModel final : private EventQueue::Target {
 public:
  // What the workers of a cluster have in common. The config must outlive it.
  struct Layers {
    Layers(const Config& config, absl::Span<const LayerTime> layer_times);

    ExchangeConfig::Schedule schedule;
    std::vector<LayerTime> times;
    std::vector<std::vector<uint32_t>> chunks;  // by layer, in model order
    std::vector<int> of_chunk;
  };

  class Network {
   public:
    virtual ~Network() = default;
    virtual void Push(int worker, uint32_t chunk) = 0;
    // The shard's answer to the chunk leaves for the worker.
    virtual void Reply(int worker, uint32_t chunk) = 0;
    // A worker has all parameters of the iteration back. Whether there is another one.
    virtual bool Ended(int iteration) = 0;
  };

  // All but `slowdown` must outlive the worker.
  WorkerModel(const Layers& layers, int rank, double slowdown, EventQueue* events,
              Network* network);

  void Start() { Advance(); }

  // The iteration whose gradients travel, or travelled last.
  int iteration() const { return iteration_; }

  // A chunk has reached its shard; a shard has an answer; the answer is here.
  void Pushed();
  void Reply(uint32_t chunk);
  void Answered(uint32_t chunk);

 private:
  enum class Phase { kForward, kBackward, kAwait };

  void OnEvent(int kind, int index) override;
  // Computes until something must be waited for: time or parameters.
  void Advance();
  void EndLayer();
  void BeginExchange();
  void PushLayer(int layer);
  void EndCompute();

  // Constant after construction.
  const Layers& layers_;
  const int rank_;
  const double slowdown_;
  EventQueue* const events_;
  Network* const network_;

  Phase phase_ = Phase::kForward;
  int layer_ = 0;  // that is computed, or waits to be
  bool computing_ = false;
  int iteration_ = -1;
  bool has_next_ = true;   // an iteration after the one whose parameters are back
  size_t unpushed_ = 0;    // chunks of this iteration that have not reached their shard
  size_t unanswered_ = 0;  // that are not back
  std::vector<size_t> layer_unanswered_;
  std::vector<uint32_t> held_replies_;  // SEQUENTIAL: until everything is pushed
};

}  // namespace ps

#endif  // PS_EXPERIMENTS_SIMULATOR_WORKER_MODEL_H_
