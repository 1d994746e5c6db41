#include "common/placement/simulator/fabric.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace evenshard {
namespace {

constexpr int kBits = 64;

}  // namespace

Fabric::Fabric(Options options, EventQueue* events)
    : options_(std::move(options)),
      events_(events),
      sources_(options_.source_rates.size()),
      destinations_(options_.destination_rates.size()),
      pairs_(sources_.size() * destinations_.size()),
      source_bytes_(sources_.size()),
      destination_bytes_(destinations_.size()) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    // Sources begin with different destinations. Otherwise equal sources would all send to the
    // first destination, then all to the second. Real connections share a link packet by packet.
    sources_[i].next = i % destinations_.size();
    sources_[i].ready.resize((destinations_.size() + kBits - 1) / kBits);
  }
}

void Fabric::Send(int source, int destination, uint32_t chunk) {
  std::vector<uint64_t>& waiting = PairOf(source, destination).waiting;
  waiting.push_back((options_.by_priority ? 0 : ++order_ << 32) | chunk);
  std::push_heap(waiting.begin(), waiting.end(), std::greater<>());
  UpdateReady(source, destination);
}

void Fabric::Prioritise(int source) {
  for (size_t i = 0; i < destinations_.size(); ++i) {
    std::vector<uint64_t>& waiting = PairOf(source, i).waiting;
    for (uint64_t& entry : waiting) entry = static_cast<uint32_t>(entry);
    std::make_heap(waiting.begin(), waiting.end(), std::greater<>());
  }
}

void Fabric::UpdateReady(int source, int destination) {
  const Pair& pair = PairOf(source, destination);
  Source& from = sources_[source];
  const uint64_t bit = uint64_t{1} << destination % kBits;
  const double lead = pair.delivered_bytes - destinations_[destination].least_bytes;
  if (pair.waiting.empty() || pair.in_flight >= options_.window ||
      (lead > options_.lead_bytes && SlowestSends(destination))) {
    from.ready[destination / kBits] &= ~bit;
    return;
  }
  from.ready[destination / kBits] |= bit;
  if (!from.sending && !std::exchange(from.picks, true)) {
    events_->AtEndOfInstant(this, kPick, source);
  }
}

bool Fabric::SlowestSends(int destination) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Pair& pair = PairOf(i, destination);
    if (pair.delivered_bytes == destinations_[destination].least_bytes &&
        (!pair.waiting.empty() || pair.in_flight > 0)) {
      return true;
    }
  }
  return false;
}

void Fabric::Pace(int source, int destination, double bytes) {
  double& delivered = PairOf(source, destination).delivered_bytes;
  double& least = destinations_[destination].least_bytes;
  const bool was_slowest = delivered == least;
  delivered += bytes;
  if (!was_slowest) return;
  least = delivered;
  for (size_t i = 0; i < sources_.size(); ++i) {
    least = std::min(least, PairOf(i, destination).delivered_bytes);
  }
  for (size_t i = 0; i < sources_.size(); ++i) UpdateReady(i, destination);
}

void Fabric::OnEvent(int kind, int index) {
  if (kind == kPick) {
    sources_[index].picks = false;
    Pick(index);
  } else if (kind == kSent) {
    Sent(index);
  } else {
    std::deque<Arrival>& arrivals = destinations_[index].arrivals;
    const Arrival arrival = arrivals.front();
    arrivals.pop_front();
    if (!arrivals.empty()) events_->At(arrivals.front().time, this, kDelivered, index);
    Delivered(index, arrival);
  }
}

int Fabric::NextReady(const Source& source) const {
  const int words = source.ready.size();
  const int first = source.next / kBits;
  // The first word is searched twice: from the bit of `next` on, and in the end as a whole.
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
  from.bytes = options_.chunk_bytes[from.chunk] * options_.destination_members[destination];
  events_->At(from.since + from.bytes / options_.source_rates[source], this, kSent, source);
}

void Fabric::Sent(int source) {
  Source& from = sources_[source];
  from.sending = false;
  from.picks = true;
  events_->AtEndOfInstant(this, kPick, source);
  const Arrival sent = {events_->now(), source, from.chunk};
  const int index = from.destination;
  source_bytes_[source] += from.bytes;
  if (options_.source_busy) options_.source_busy(source, from.since, sent.time);

  // The destination's link has been passing the chunk on since its first byte left. Times of
  // arrival never decrease, because neither `now` nor `free_at` does.
  Destination& to = destinations_[index];
  const double begin = std::max(to.free_at, from.since);
  const double bytes = options_.chunk_bytes[sent.chunk] * options_.source_members[source];
  to.free_at = begin + bytes / options_.destination_rates[index];
  if (options_.destination_busy) options_.destination_busy(index, begin, to.free_at);
  const Arrival arrival = {std::max(events_->now(), to.free_at), source, sent.chunk};
  if (to.arrivals.empty() && arrival.time <= events_->now()) {
    Delivered(index, arrival);
    return;
  }
  to.arrivals.push_back(arrival);
  if (to.arrivals.size() == 1) events_->At(arrival.time, this, kDelivered, index);
}

void Fabric::Delivered(int destination, const Arrival& arrival) {
  --PairOf(arrival.source, destination).in_flight;
  if (std::isfinite(options_.lead_bytes)) {
    Pace(arrival.source, destination, options_.chunk_bytes[arrival.chunk]);
  }
  UpdateReady(arrival.source, destination);
  destination_bytes_[destination] +=
      options_.chunk_bytes[arrival.chunk] * options_.source_members[arrival.source];
  options_.delivered(arrival.source, destination, arrival.chunk);
}

}  // namespace evenshard
