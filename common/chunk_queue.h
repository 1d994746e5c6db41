#ifndef PS_COMMON_CHUNK_QUEUE_H_
#define PS_COMMON_CHUNK_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "proto/config.pb.h"

namespace ps {

// In which order chunks have their turn.
enum class ChunkOrder {
  kArrival,   // first in, first out
  kPriority,  // the smallest id first: what the next forward pass needs first
};

// Of a run.
inline ChunkOrder ChunkOrderOf(const ExchangeConfig& exchange) {
  return exchange.schedule() == ExchangeConfig::FULL ? ChunkOrder::kPriority : ChunkOrder::kArrival;
}

// Chunks that wait to be sent, or to be worked on, each with what else is to be said of it. Not
// thread-safe.
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

  // Removes and returns the next one. REQUIRES: not empty.
  Item Pop() { return std::move(items_.extract(items_.begin()).mapped()); }

 private:
  const ChunkOrder order_;
  uint64_t arrivals_ = 0;
  std::multimap<uint64_t, Item> items_;  // equal keys stay in the order of their arrival
};

}  // namespace ps

#endif  // PS_COMMON_CHUNK_QUEUE_H_
