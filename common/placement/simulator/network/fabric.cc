#include "common/placement/simulator/network/fabric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace evenshard {
namespace {

constexpr int kBits = 64;

}  // namespace

Fabric::Fabric(Options options, EventQueue* events)
    : options_(std::move(options)),
      events_(events),
      sources_(options_.source_rates.size()),
      links_(options_.destination_rates.size()),
      pairs_(sources_.size() * options_.destination_members.size()),
      source_bytes_(sources_.size()),
      destination_bytes_(links_.size()) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < options_.destination_members.size(); ++i) {
    destinations_.push_back(
        {.link = options_.destination_links.empty() ? static_cast<int>(i)
                                                    : options_.destination_links[i],
         .lead_bytes = options_.lead_bytes.empty() ? kNoLimit : options_.lead_bytes[i],
         .by_priority = !options_.by_priority.empty() && options_.by_priority[i]});
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    // Sources begin with different destinations. Otherwise equal sources would all send to the
    // first destination, then all to the second. Real connections share a link packet by packet.
    sources_[i].next = i % destinations_.size();
    sources_[i].ready.resize((destinations_.size() + kBits - 1) / kBits);
  }
}

void Fabric::Send(int source, int destination, uint32_t chunk) {
  const Destination& to = destinations_[destination];
  if (!options_.destination_links.empty() && to.link == source) {
    on_one_host_.push_back({events_->now(), source, destination, chunk});
    events_->At(events_->now(), this, kOnOneHost, 0);
    return;
  }
  std::vector<uint64_t>& waiting = PairOf(source, destination).waiting;
  waiting.push_back((to.by_priority ? 0 : ++order_ << 32) | chunk);
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
  const Destination& to = destinations_[destination];
  const double lead = pair.delivered_bytes - to.least_bytes;
  if (pair.waiting.empty() || pair.in_flight >= options_.window ||
      (lead > to.lead_bytes && SlowestSends(destination))) {
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
  } else if (kind == kPassed) {
    std::deque<Arrival>& arrivals = links_[index].arrivals;
    const Arrival arrival = arrivals.front();
    arrivals.pop_front();
    if (!arrivals.empty()) events_->At(arrivals.front().time, this, kPassed, index);
    Passed(arrival);
  } else {
    std::deque<Arrival>& arrivals = kind == kLate ? late_ : on_one_host_;
    const Arrival arrival = arrivals.front();
    arrivals.pop_front();
    Deliver(arrival);
  }
}

int Fabric::NextTurn(int source) {
  const Source& from = sources_[source];
  const int words = from.ready.size();
  const int first = from.next / kBits;
  int best = -1;
  double least = 0;
  // The first word is searched twice: from the bit of `next` on, and in the end as a whole.
  uint64_t mask = ~uint64_t{0} << from.next % kBits;
  for (int i = 0; i <= words; ++i) {
    const int word = (first + i) % words;
    for (uint64_t ready = from.ready[word] & mask; ready != 0; ready &= ready - 1) {
      const int destination = word * kBits + __builtin_ctzll(ready);
      const double turn = PairOf(source, destination).turn;
      if (turn <= from.turn) return destination;
      if (best >= 0 && turn >= least) continue;
      best = destination;
      least = turn;
    }
    mask = ~uint64_t{0};
  }
  return best;
}

void Fabric::Pick(int source) {
  Source& from = sources_[source];
  const int destination = NextTurn(source);
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
  // A destination that had no chunks for a while does not make up for it.
  from.turn = std::max(from.turn, pair.turn);
  pair.turn = from.turn + options_.chunk_bytes[from.chunk];
  UpdateReady(source, destination);
  from.bytes = options_.chunk_bytes[from.chunk] * options_.destination_members[destination];
  events_->At(from.since + from.bytes / options_.source_rates[source], this, kSent, source);
}

void Fabric::Sent(int source) {
  Source& from = sources_[source];
  from.sending = false;
  from.picks = true;
  events_->AtEndOfInstant(this, kPick, source);
  source_bytes_[source] += from.bytes;
  if (options_.source_busy) options_.source_busy(source, from.since, events_->now());

  // The destination's link has been passing the chunk on since its first byte left. Times of
  // arrival never decrease, because neither `now` nor `free_at` does.
  const int index = destinations_[from.destination].link;
  Link& link = links_[index];
  const double begin = std::max(link.free_at, from.since);
  const double bytes = options_.chunk_bytes[from.chunk] * options_.source_members[source];
  link.free_at = begin + bytes / options_.destination_rates[index];
  if (options_.destination_busy) options_.destination_busy(index, begin, link.free_at);
  const Arrival arrival = {std::max(events_->now(), link.free_at), source, from.destination,
                           from.chunk};
  if (link.arrivals.empty() && arrival.time <= events_->now()) {
    Passed(arrival);
    return;
  }
  link.arrivals.push_back(arrival);
  if (link.arrivals.size() == 1) events_->At(arrival.time, this, kPassed, index);
}

void Fabric::Passed(const Arrival& arrival) {
  --PairOf(arrival.source, arrival.destination).in_flight;
  destination_bytes_[destinations_[arrival.destination].link] +=
      options_.chunk_bytes[arrival.chunk] * options_.source_members[arrival.source];
  if (options_.latency_seconds == 0) return Deliver(arrival);
  UpdateReady(arrival.source, arrival.destination);
  late_.push_back(arrival);
  events_->At(events_->now() + options_.latency_seconds, this, kLate, 0);
}

void Fabric::Deliver(const Arrival& arrival) {
  const auto& [time, source, destination, chunk] = arrival;
  if (std::isfinite(destinations_[destination].lead_bytes)) {
    Pace(source, destination, options_.chunk_bytes[chunk]);
  }
  UpdateReady(source, destination);
  options_.delivered(source, destination, chunk);
}

}  // namespace evenshard
