#ifndef PS_EXPERIMENTS_SIMULATOR_FABRIC_H_
#define PS_EXPERIMENTS_SIMULATOR_FABRIC_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "experiments/simulator/event_queue.h"

namespace ps {

// One direction of a full-duplex network: every source has a link into it and every
// destination one out of it, each with a rate of its own, and nothing else limits.
//
// A source sends one chunk at a time, to its destinations in turn, as its connections would
// share the link; a destination's link passes chunks on in the order of their arrival. A chunk
// passes both links at once where both are free. At most `window` chunks between a source
// and a destination have left the one and not reached the other, so that a slow destination
// stops nobody but those who wait for it. Not thread-safe.
class Fabric final : private EventQueue::Target {
 public:
  using Callback = std::function<void(int source, int destination, uint32_t chunk)>;
  struct Options {
    std::vector<double> source_rates;       // bytes per second
    std::vector<double> destination_rates;  // bytes per second
    std::vector<double> chunk_bytes;        // by chunk
    int window = 1;
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
  struct Arrival {
    double time;
    int source;
    uint32_t chunk;
  };
  struct Destination {
    double free_at = 0;            // the link has passed on everything
    std::deque<Arrival> arrivals;  // in the order of time
  };

  void OnEvent(int kind, int index) override;
  void Pick(int source);
  void Sent(int source);
  void Delivered(int destination, const Arrival& arrival);

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
  uint64_t order_ = 0;
  std::vector<double> source_bytes_;
  std::vector<double> destination_bytes_;
};

}  // namespace ps

#endif  // PS_EXPERIMENTS_SIMULATOR_FABRIC_H_
