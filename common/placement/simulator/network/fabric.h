#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_FABRIC_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_FABRIC_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "common/placement/simulator/network/event_queue.h"

namespace evenshard {

// One direction of a full-duplex network. Every source has a link into the network and every
// destination has one out of it. Each link has its own rate, and nothing else limits the traffic.
//
// A source sends one chunk at a time, to its destinations in turn, just as its connections would
// share the link: all get the same bytes of it, whatever the sizes of their chunks (start-time fair
// queuing: Goyal, Vin and Cheng 1996). A destination's link passes chunks on in the order of their
// arrival. A chunk passes both links at the same time if both are free. At most `window` chunks are
// on their way between a source and a destination, so that a slow destination does not block the
// others.
//
// A source or a destination may stand for several equal machines that send or receive the same
// chunks at the same time. Such a chunk passes the link at its other end once for each of them.
//
// Destinations may share a link, as those on one host do.
// Not thread-safe.
class Fabric final : private EventQueue::Target {
 public:
  using Callback = std::function<void(int source, int destination, uint32_t chunk)>;
  using BusyCallback = std::function<void(int link, double begin, double end)>;
  struct Options {
    std::vector<double> source_rates;       // bytes per second
    std::vector<double> destination_rates;  // bytes per second; of each link out of the network
    std::vector<double> source_members;     // the number of machines that each stands for
    std::vector<double> destination_members;
    // By destination: the link through which it receives. Link I and source I are on one host, so
    // that what source I sends to a destination with link I passes no link. Empty: each destination
    // has a link of its own, which is on no source's host.
    std::vector<int> destination_links = {};
    std::vector<double> chunk_bytes;  // by chunk
    int window = 1;                   // chunks
    // How long a chunk takes to arrive after it has passed the links, while the next ones pass
    // them.
    double latency_seconds = 0;
    // By destination: if true, the waiting chunk with the smallest number leaves first. Otherwise,
    // and if this is empty, chunks leave in the order of the calls of Send.
    std::vector<bool> by_priority = {};
    // By destination: it takes no chunk of a source that is so many bytes ahead of the slowest one,
    // while the slowest one is sending to it (server/update/push_pacing.h). Empty: no limits.
    std::vector<double> lead_bytes = {};
    Callback delivered;  // called when a chunk has reached its destination
    // If they are given, they are called with the times in which a link is busy, in order.
    BusyCallback source_busy = nullptr;
    BusyCallback destination_busy = nullptr;
  };

  // `events` must outlive the fabric.
  Fabric(Options options, EventQueue* events);

  void Send(int source, int destination, uint32_t chunk);

  // Lets the chunks of a source that are waiting leave in the order of their numbers, and before
  // those that are sent later.
  void Prioritise(int source);

  // The bytes that have passed each link; that of one machine, if there are several.
  // By source, and by link of destinations.
  const std::vector<double>& source_bytes() const { return source_bytes_; }
  const std::vector<double>& destination_bytes() const { return destination_bytes_; }

 private:
  enum Kind { kPick, kSent, kPassed, kLate, kOnOneHost };

  // The chunks between a source and a destination.
  struct Pair {
    std::vector<uint64_t> waiting;  // min-heap of (order << 32 | chunk)
    int in_flight = 0;
    double delivered_bytes = 0;
    double turn = 0;  // the Source::turn at which its next chunk is due
  };
  struct Source {
    bool picks = false;  // picks its next chunk at the end of this instant
    bool sending = false;
    // The chunk that is being sent, if `sending`.
    int destination = 0;
    uint32_t chunk = 0;
    double since = 0;
    double bytes = 0;             // that pass the source's link
    double turn = 0;              // bytes that a destination with chunks has been sent by now
    int next = 0;                 // of destinations with the same turn, the one that comes first
    std::vector<uint64_t> ready;  // a bit for each destination, set if a chunk may be sent to it
  };
  struct Arrival {
    double time;
    int source;
    int destination;
    uint32_t chunk;
  };
  struct Destination {
    int link;
    double lead_bytes;
    bool by_priority;
    double least_bytes = 0;  // what the slowest source has delivered
  };
  // A link out of the network.
  struct Link {
    double free_at = 0;            // when it has passed on everything
    std::deque<Arrival> arrivals;  // in order of time
  };

  void OnEvent(int kind, int index) override;
  void Pick(int source);
  void Sent(int source);
  // A chunk has passed the links.
  void Passed(const Arrival& arrival);
  void Deliver(const Arrival& arrival);

  void UpdateReady(int source, int destination);
  // Counts a chunk for lead_bytes.
  void Pace(int source, int destination, double bytes);
  // Returns whether a source that is slowest is sending, so that others may have to wait for it.
  bool SlowestSends(int destination);
  // Returns the ready destination whose turn it is, or -1 if there is none.
  int NextTurn(int source);
  Pair& PairOf(int source, int destination) {
    return pairs_[static_cast<size_t>(source) * destinations_.size() + destination];
  }

  const Options options_;
  EventQueue* const events_;
  std::vector<Source> sources_;
  std::vector<Destination> destinations_;
  std::vector<Link> links_;
  std::vector<Pair> pairs_;
  std::deque<Arrival> late_;         // chunks that have passed the links, and take latency_seconds
  std::deque<Arrival> on_one_host_;  // chunks that pass no link
  uint64_t order_ = 0;
  std::vector<double> source_bytes_;
  std::vector<double> destination_bytes_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_FABRIC_H_
