#include "experiments/simulator/fabric.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace ps {
namespace {

constexpr int kBits = 64;

}  // namespace

Fabric::Fabric(Options options, EventQueue* events)
    : options_(std::move(options)),
      events_(events),
      sources_(options_.source_rates.size()),
      destinations_(options_.destination_rates.size()),
      pairs_(sources_.size() * destinations_.size()),
      random_(options_.seed, "fabric"),
      source_bytes_(sources_.size()),
      destination_bytes_(destinations_.size()) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    // Otherwise equal sources would all send to the first destination, then all to the second,
    // where real connections share a link packet by packet.
    sources_[i].next = i % destinations_.size();
    sources_[i].ready.resize((destinations_.size() + kBits - 1) / kBits);
  }
}

void Fabric::Send(int source, int destination, uint32_t chunk) {
  Pair& pair = PairOf(source, destination);
  std::vector<uint64_t>& waiting = pair.waiting;
  if (options_.unfairness > 0 && waiting.empty() && pair.in_flight == 0) {
    pair.weight = std::exp(options_.unfairness * random_.Normal(draws_++));
  }
  waiting.push_back((options_.by_priority ? 0 : order_++ << 32) | chunk);
  std::push_heap(waiting.begin(), waiting.end(), std::greater<>());
  UpdateReady(source, destination);
}

void Fabric::UpdateReady(int source, int destination) {
  const Pair& pair = PairOf(source, destination);
  Source& from = sources_[source];
  const uint64_t bit = uint64_t{1} << destination % kBits;
  if (pair.waiting.empty() || pair.in_flight >= options_.window) {
    from.ready[destination / kBits] &= ~bit;
    return;
  }
  from.ready[destination / kBits] |= bit;
  if (!from.sending && !std::exchange(from.picks, true)) {
    events_->AtEndOfInstant(this, kPick, source);
  }
}

void Fabric::OnEvent(int kind, int index) {
  if (kind == kPick) {
    sources_[index].picks = false;
    Pick(index);
  } else if (kind == kSent) {
    Sent(index);
  } else {
    Delivered(index);
  }
}

int Fabric::NextReady(const Source& source) const {
  const int words = source.ready.size();
  const int first = source.next / kBits;
  // The word of `next` twice: from its bit on at first, whole in the end.
  uint64_t mask = ~uint64_t{0} << source.next % kBits;
  for (int i = 0; i <= words; ++i) {
    const int word = (first + i) % words;
    if (const uint64_t ready = source.ready[word] & mask; ready != 0) {
      return word * kBits + __builtin_ctzll(ready);
    }
    mask = ~uint64_t{0};
  }
  return -1;
}

void Fabric::Pick(int source) {
  Source& from = sources_[source];
  const int destination = NextReady(from);
  if (destination < 0) return;
  Pair& pair = PairOf(source, destination);
  std::pop_heap(pair.waiting.begin(), pair.waiting.end(), std::greater<>());
  from.chunk = static_cast<uint32_t>(pair.waiting.back());
  pair.waiting.pop_back();
  ++pair.in_flight;
  from.sending = true;
  from.destination = destination;
  from.since = events_->now();
  from.next = (destination + 1) % destinations_.size();
  UpdateReady(source, destination);
  events_->At(from.since + options_.chunk_bytes[from.chunk] / options_.source_rates[source], this,
              kSent, source);
}

void Fabric::Sent(int source) {
  Source& from = sources_[source];
  from.sending = false;
  from.picks = true;
  events_->AtEndOfInstant(this, kPick, source);
  const double bytes = options_.chunk_bytes[from.chunk];
  source_bytes_[source] += bytes;

  Destination& to = destinations_[from.destination];
  Pair& pair = PairOf(source, from.destination);
  pair.tag = std::max(pair.tag, to.passing.tag) + bytes / pair.weight;
  to.arrivals.push({pair.tag, order_++, from.since, source, from.chunk});
  if (!to.busy) PassOn(from.destination);
}

void Fabric::PassOn(int destination) {
  Destination& to = destinations_[destination];
  if (to.arrivals.empty()) return;
  to.busy = true;
  to.passing = to.arrivals.top();
  to.arrivals.pop();
  // The link may have worked on the chunk since its first byte left the source.
  to.free_at = std::max(to.free_at, to.passing.since) +
               options_.chunk_bytes[to.passing.chunk] / options_.destination_rates[destination];
  if (to.free_at <= events_->now()) {
    Delivered(destination);
  } else {
    events_->At(to.free_at, this, kDelivered, destination);
  }
}

void Fabric::Delivered(int destination) {
  Destination& to = destinations_[destination];
  to.busy = false;
  const int source = to.passing.source;
  --PairOf(source, destination).in_flight;
  UpdateReady(source, destination);
  destination_bytes_[destination] += options_.chunk_bytes[to.passing.chunk];
  options_.delivered(source, destination, to.passing.chunk);
  PassOn(destination);
}

}  // namespace ps
