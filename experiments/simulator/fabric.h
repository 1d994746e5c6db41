#ifndef PS_EXPERIMENTS_SIMULATOR_FABRIC_H_
#define PS_EXPERIMENTS_SIMULATOR_FABRIC_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "common/random.h"
#include "experiments/simulator/event_queue.h"

namespace ps {

// One direction of a full-duplex network: every source has a link into it and every
// destination one out of it, each with a rate of its own, and nothing else limits.
//
// A source sends one chunk at a time, to its destinations in turn, as its connections would
// share the link. A destination's link is shared by its sources as TCP's connections share a
// queue, unequally: each has a weight, drawn anew whenever it begins to send after it had
// nothing to send, whose logarithm is normal with the standard deviation `unfairness`. Chunks
// are passed on one by one in the order that gives these shares (self-clocked fair queueing:
// Golestani, INFOCOM 1994).
//
// A chunk passes both links at once where both are free. At most `window` chunks between a
// source and a destination have left the one and not reached the other, so that a slow
// destination stops nobody but those who wait for it. Not thread-safe.
class Fabric final : private EventQueue::Target {
 public:
  using Callback = std::function<void(int source, int destination, uint32_t chunk)>;
  struct Options {
    std::vector<double> source_rates;       // bytes per second
    std::vector<double> destination_rates;  // bytes per second
    std::vector<double> chunk_bytes;        // by chunk
    int window = 1;
    double unfairness = 0;
    uint64_t seed = 0;  // of the weights
    // Waiting chunks leave by number, the smallest first; otherwise in the order of Send.
    bool by_priority = false;
    Callback delivered;  // a chunk has reached its destination
  };

  // `events` must outlive the fabric.
  Fabric(Options options, EventQueue* events);

  void Send(int source, int destination, uint32_t chunk);

  // Bytes that have passed each link.
  const std::vector<double>& source_bytes() const { return source_bytes_; }
  const std::vector<double>& destination_bytes() const { return destination_bytes_; }

 private:
  enum Kind { kPick, kSent, kDelivered };

  // What waits between a source and a destination.
  struct Pair {
    std::vector<uint64_t> waiting;  // heap; the chunk in the lower half, its order in the upper
    int in_flight = 0;
    float weight = 1;
    double tag = 0;  // of the last chunk to arrive
  };
  struct Source {
    bool picks = false;    // will pick at the end of this instant
    bool sending = false;  // what follows
    int destination = 0;
    uint32_t chunk = 0;
    double since = 0;
    int next = 0;                 // whose turn it is
    std::vector<uint64_t> ready;  // a bit for each destination that could be sent to
  };
  // A chunk that has left its source.
  struct Arrival {
    double tag;      // the smallest is passed on first
    uint64_t order;  // and then the smallest of these
    double since;    // its first byte has left the source
    int source;
    uint32_t chunk;

    bool operator<(const Arrival& other) const {  // the first one is the top of the queue
      return tag > other.tag || (tag == other.tag && order > other.order);
    }
  };
  struct Destination {
    double free_at = 0;  // the link has passed on all before
    bool busy = false;   // with what follows
    Arrival passing = {};
    std::priority_queue<Arrival> arrivals;
  };

  void OnEvent(int kind, int index) override;
  void Pick(int source);
  void Sent(int source);
  // Passes the next arrival on, if there is one.
  void PassOn(int destination);
  void Delivered(int destination);

  void UpdateReady(int source, int destination);
  // The first ready destination at or after `next`, in a circle; -1: none.
  int NextReady(const Source& source) const;
  Pair& PairOf(int source, int destination) {
    return pairs_[static_cast<size_t>(source) * destinations_.size() + destination];
  }

  const Options options_;
  EventQueue* const events_;
  std::vector<Source> sources_;
  std::vector<Destination> destinations_;
  std::vector<Pair> pairs_;
  const CounterRandom random_;
  uint64_t draws_ = 0;
  uint64_t order_ = 0;
  std::vector<double> source_bytes_;
  std::vector<double> destination_bytes_;
};

}  // namespace ps

#endif  // PS_EXPERIMENTS_SIMULATOR_FABRIC_H_
