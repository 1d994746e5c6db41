#ifndef EVENSHARD_COMMON_WIRE_CHUNK_QUEUE_H_
#define EVENSHARD_COMMON_WIRE_CHUNK_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "proto/config.pb.h"

namespace evenshard {

// The order in which chunks leave a queue.
enum class ChunkOrder {
  kArrival,   // first in, first out
  kPriority,  // smallest id first, the one that the next forward pass needs first
};

// Returns the order that the run's schedule asks for.
inline ChunkOrder ChunkOrderOf(const ExchangeConfig& exchange) {
  return exchange.schedule() == ExchangeConfig::FULL ? ChunkOrder::kPriority : ChunkOrder::kArrival;
}

// A queue of chunks that wait at a shard to be answered or processed. Each chunk carries an item of
// the caller's.
// Not thread-safe.
template <typename Item>
class ChunkQueue {
 public:
  explicit ChunkQueue(ChunkOrder order) : order_(order) {}

  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  void clear() { items_.clear(); }

  void Push(uint32_t chunk, Item item) {
    items_.emplace(order_ == ChunkOrder::kPriority ? chunk : arrivals_++, std::move(item));
  }

  // Removes and returns the item of the next chunk. REQUIRES: !empty().
  Item Pop() { return std::move(items_.extract(items_.begin()).mapped()); }

 private:
  const ChunkOrder order_;
  uint64_t arrivals_ = 0;
  std::multimap<uint64_t, Item> items_;  // equal keys keep the order of insertion
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_CHUNK_QUEUE_H_
