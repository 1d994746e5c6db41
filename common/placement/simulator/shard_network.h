#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SHARD_NETWORK_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SHARD_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/network/event_queue.h"
#include "common/placement/simulator/network/fabric.h"
#include "common/placement/simulator/representatives.h"
#include "common/placement/simulator/simulation.h"

namespace evenshard {

// The links of workers and shards, and the chunks that are on their way between them. Each worker
// and each shard has a link of its own, or worker I and shard I share one. Not thread-safe.
class ShardNetwork {
 public:
  using Callback = std::function<void(int worker, int shard, uint32_t chunk)>;
  using BusyCallback = Fabric::BusyCallback;
  struct Options {
    const ClusterRates* rates = nullptr;               // must outlive the network, as what follows
    const Representatives* representatives = nullptr;  // each worker is one of them
    // Shard I is on the host of worker I. REQUIRES: the two have equal links, and the worker stands
    // for itself only.
    bool colocated = false;
    std::vector<double> gradient_bytes;  // by chunk
    std::vector<double> parameter_bytes;
    int window = 1;  // Fabric's, as are the following
    double lead_bytes = 0;
    bool replies_by_priority = false;
    Callback pushed;   // a gradient has reached its shard
    Callback replied;  // parameters have reached their worker
    // If they are given, they are called with the times in which a shard's link is busy, in order.
    BusyCallback shard_in = nullptr;
    BusyCallback shard_out = nullptr;
  };

  // `events` must outlive the network.
  ShardNetwork(const Options& options, EventQueue* events);

  void Push(int worker, int shard, uint32_t chunk) { pushes_->Send(worker, shard, chunk); }
  // Fabric::Prioritise, for the pushes of a worker.
  void Prioritise(int worker) { pushes_->Prioritise(worker); }
  void Reply(int shard, int worker, uint32_t chunk) {
    replies_->Send(shard, first_worker_ + worker, first_reply_ + chunk);
  }

  // The bytes that have passed the link of a shard, or of one of the workers that a representative
  // stands for.
  LinkUse shard_link(int shard) const;
  LinkUse worker_link(int worker) const;

 private:
  void ConnectHosts(const Options& options, EventQueue* events);
  void ConnectSeparately(const Options& options, EventQueue* events);

  // What the fabric of replies calls the first worker and the first chunk.
  int first_worker_ = 0;
  uint32_t first_reply_ = 0;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  Fabric* pushes_ = nullptr;
  Fabric* replies_ = nullptr;  // the same one, if hosts have both workers and shards
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SHARD_NETWORK_H_
