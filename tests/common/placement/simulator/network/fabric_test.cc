#include "common/placement/simulator/network/fabric.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace evenshard {
namespace {

struct Arrived {
  double time;
  int source;
  int destination;
  uint32_t chunk;

  friend bool operator==(const Arrived&, const Arrived&) = default;
};

// A fabric on its own, with chunks of 1 byte but the fourth, which has 2.
class Network {
 public:
  Network(std::vector<double> source_rates, std::vector<double> destination_rates,
          bool by_priority = false, int window = 2,
          double lead_bytes = std::numeric_limits<double>::infinity())
      : fabric_({.source_rates = source_rates,
                 .destination_rates = destination_rates,
                 .source_members = std::vector<double>(source_rates.size(), 1),
                 .destination_members = std::vector<double>(destination_rates.size(), 1),
                 .chunk_bytes = {1, 1, 1, 2},
                 .window = window,
                 .by_priority = std::vector<bool>(destination_rates.size(), by_priority),
                 .lead_bytes = std::vector<double>(destination_rates.size(), lead_bytes),
                 .delivered =
                     [this](int source, int destination, uint32_t chunk) {
                       arrived_.push_back({events_.now(), source, destination, chunk});
                     }},
                &events_) {}

  Fabric& fabric() { return fabric_; }

  const std::vector<Arrived>& Run() {
    while (events_.RunNext()) {
    }
    return arrived_;
  }

 private:
  EventQueue events_;
  std::vector<Arrived> arrived_;
  Fabric fabric_;
};

TEST_CASE("a chunk passes both links at once, and as fast as the slower one") {
  Network fast({1}, {4});
  fast.fabric().Send(0, 0, 0);
  CHECK(fast.Run() == std::vector<Arrived>{{1, 0, 0, 0}});
  Network slow({4}, {1});
  slow.fabric().Send(0, 0, 0);
  CHECK(slow.Run() == std::vector<Arrived>{{1, 0, 0, 0}});
}

TEST_CASE("chunks leave in the order of the calls or by number") {
  for (const bool by_priority : {false, true}) {
    CAPTURE(by_priority);
    Network network({1}, {1}, by_priority);
    for (const uint32_t chunk : {2, 3, 0, 1}) network.fabric().Send(0, 0, chunk);
    std::vector<uint32_t> order;
    for (const Arrived& arrived : network.Run()) order.push_back(arrived.chunk);
    CHECK(order ==
          (by_priority ? std::vector<uint32_t>{0, 1, 2, 3} : std::vector<uint32_t>{2, 3, 0, 1}));
    CHECK(network.Run().back().time == 5);
  }
}

TEST_CASE("prioritised chunks leave by number, before those that are sent later") {
  Network network({1}, {1});
  for (const uint32_t chunk : {2, 3, 1}) network.fabric().Send(0, 0, chunk);
  network.fabric().Prioritise(0);
  network.fabric().Send(0, 0, 0);
  std::vector<uint32_t> order;
  for (const Arrived& arrived : network.Run()) order.push_back(arrived.chunk);
  CHECK(order == std::vector<uint32_t>{1, 2, 3, 0});
}

TEST_CASE("sources share the link of a destination, and it is never idle") {
  Network network({1, 1, 1}, {1});
  for (int source = 0; source < 3; ++source) {
    network.fabric().Send(source, 0, 0);
    network.fabric().Send(source, 0, 1);
  }
  const std::vector<Arrived>& arrived = network.Run();
  REQUIRE(arrived.size() == 6);
  for (int i = 0; i < 6; ++i) CHECK(arrived[i].time == i + 1);
  // Everybody's first chunk comes before anybody's second.
  CHECK(std::all_of(arrived.begin(), arrived.begin() + 3,
                    [](const Arrived& a) { return a.chunk == 0; }));
}

TEST_CASE("a source serves its destinations in turn, and equal sources begin at different ones") {
  Network network({1, 1}, {1, 1});
  for (int source = 0; source < 2; ++source) {
    for (int destination = 0; destination < 2; ++destination) {
      network.fabric().Send(source, destination, 0);
      network.fabric().Send(source, destination, 1);
    }
  }
  const std::vector<Arrived> arrived = network.Run();
  REQUIRE(arrived.size() == 8);
  CHECK(arrived.back().time == 4);  // no link was idle
  CHECK(arrived[0].destination != arrived[1].destination);
}

TEST_CASE("destinations share the link of a source by bytes, whatever the sizes of their chunks") {
  Network network({1}, {1, 1});
  for (const uint32_t chunk : {0, 1, 2, 0}) network.fabric().Send(0, 0, chunk);
  for (int i = 0; i < 2; ++i) network.fabric().Send(0, 1, 3);
  CHECK(network.Run() ==
        std::vector<Arrived>{
            {1, 0, 0, 0}, {3, 0, 1, 3}, {4, 0, 0, 1}, {6, 0, 1, 3}, {7, 0, 0, 2}, {8, 0, 0, 0}});
}

TEST_CASE("a destination that had no chunks for a while does not make up for it") {
  Network network({1}, {1, 1});
  for (int i = 0; i < 3; ++i) network.fabric().Send(0, 0, 3);
  network.Run();
  for (const int destination : {0, 1, 0, 1}) network.fabric().Send(0, destination, 3);
  std::vector<int> destinations;
  for (const Arrived& arrived : network.Run()) destinations.push_back(arrived.destination);
  CHECK(destinations == std::vector<int>{0, 0, 0, 1, 0, 1, 0});
}

TEST_CASE("a slow destination does not delay the others") {
  Network network({1}, {0.01, 1});
  for (const uint32_t chunk : {0, 1, 2}) {
    network.fabric().Send(0, 0, chunk);
    network.fabric().Send(0, 1, chunk);
  }
  const std::vector<Arrived> arrived = network.Run();
  REQUIRE(arrived.size() == 6);
  for (int i = 0; i < 3; ++i) {
    CHECK(arrived[i].destination == 1);
    // Two chunks are under way to the slow one.
    CHECK(arrived[i].time <= 5);
  }
  CHECK(arrived.back().time == Approx(300).margin(1));
}

TEST_CASE("a source does not get further ahead of a slower one that sends than it may") {
  // The second source is slow, so that the first one could deliver everything before its first.
  const auto sources = [](double lead_bytes, bool slow_sends) {
    Network network({10, 0.5}, {10}, false, 1, lead_bytes);
    for (const uint32_t chunk : {0, 1, 2}) network.fabric().Send(0, 0, chunk);
    for (const uint32_t chunk : {0, 1, 2}) {
      if (slow_sends) network.fabric().Send(1, 0, chunk);
    }
    std::vector<int> order;
    for (const Arrived& arrived : network.Run()) order.push_back(arrived.source);
    return order;
  };
  CHECK(sources(3, true) == std::vector<int>{0, 0, 0, 1, 1, 1});
  CHECK(sources(1, true) == std::vector<int>{0, 0, 1, 0, 1, 1});
  CHECK(sources(0, true) == std::vector<int>{0, 1, 0, 1, 0, 1});
  CHECK(sources(0, false) == std::vector<int>{0, 0, 0});
}

TEST_CASE("every byte is counted at both links that it passes") {
  Network network({1, 2}, {3, 4, 5});
  for (const auto& [source, destination, chunk] :
       std::vector<std::tuple<int, int, uint32_t>>{{0, 0, 0}, {0, 2, 3}, {1, 2, 1}, {1, 2, 3}}) {
    network.fabric().Send(source, destination, chunk);
  }
  CHECK(network.Run().size() == 4);
  CHECK(network.fabric().source_bytes() == std::vector<double>{3, 3});
  CHECK(network.fabric().destination_bytes() == std::vector<double>{1, 0, 5});
}

TEST_CASE("a chunk of several machines passes the other end's link once for each of them") {
  EventQueue events;
  std::vector<double> times;
  const auto fabric = [&](double sources, double destinations) {
    return Fabric::Options{.source_rates = {1, 1},
                           .destination_rates = {2},
                           .source_members = {sources, 1},
                           .destination_members = {destinations},
                           .chunk_bytes = {1},
                           .delivered = [&](int, int, uint32_t) { times.push_back(events.now()); }};
  };
  Fabric many_sources(fabric(6, 1), &events);
  many_sources.Send(0, 0, 0);
  many_sources.Send(1, 0, 0);
  while (events.RunNext()) {
  }
  CHECK(times == std::vector<double>{3, 3.5});
  CHECK(many_sources.source_bytes() == std::vector<double>{1, 1});
  CHECK(many_sources.destination_bytes() == std::vector<double>{7});

  times.clear();
  Fabric many_destinations(fabric(1, 6), &events);
  many_destinations.Send(1, 0, 0);
  while (events.RunNext()) {
  }
  CHECK(times == std::vector<double>{3.5 + 6});
  CHECK(many_destinations.source_bytes() == std::vector<double>{0, 6});
  CHECK(many_destinations.destination_bytes() == std::vector<double>{1});
}

// Two hosts, each with a source and a link of 1 byte per second, and two destinations.
Fabric::Options TwoHosts(Fabric::Callback delivered) {
  return {.source_rates = {1, 1},
          .destination_rates = {1, 1},
          .source_members = {1, 1},
          .destination_members = {1, 1, 1, 1},
          .destination_links = {0, 1, 0, 1},
          .chunk_bytes = {1, 2},
          .window = 2,
          .by_priority = {false, false, true, true},
          .delivered = std::move(delivered)};
}

TEST_CASE("destinations on one host share its link") {
  EventQueue events;
  std::vector<Arrived> arrived;
  Fabric fabric(TwoHosts([&](int source, int destination, uint32_t chunk) {
                  arrived.push_back({events.now(), source, destination, chunk});
                }),
                &events);
  for (const uint32_t chunk : {1, 0}) {
    fabric.Send(0, 1, chunk);
    fabric.Send(0, 3, chunk);
  }
  while (events.RunNext()) {
  }
  // In turn, and by number only for those destinations for which it is asked.
  CHECK(arrived == std::vector<Arrived>{{2, 0, 1, 1}, {3, 0, 3, 0}, {5, 0, 3, 1}, {6, 0, 1, 0}});
  CHECK(fabric.source_bytes() == std::vector<double>{6, 0});
  CHECK(fabric.destination_bytes() == std::vector<double>{0, 6});
}

TEST_CASE("what is for the same host passes no link") {
  EventQueue events;
  std::vector<Arrived> arrived;
  Fabric fabric(TwoHosts([&](int source, int destination, uint32_t chunk) {
                  arrived.push_back({events.now(), source, destination, chunk});
                }),
                &events);
  fabric.Send(0, 1, 1);
  fabric.Send(0, 0, 0);
  fabric.Send(0, 2, 1);
  while (events.RunNext()) {
  }
  CHECK(arrived == std::vector<Arrived>{{0, 0, 0, 0}, {0, 0, 2, 1}, {2, 0, 1, 1}});
  CHECK(fabric.source_bytes() == std::vector<double>{2, 0});
  CHECK(fabric.destination_bytes() == std::vector<double>{0, 2});
}

TEST_CASE("latency delays every chunk, and the link passes others meanwhile") {
  EventQueue events;
  std::vector<double> times;
  Fabric fabric({.source_rates = {1},
                 .destination_rates = {1},
                 .source_members = {1},
                 .destination_members = {1},
                 .chunk_bytes = {1},
                 .window = 1,
                 .latency_seconds = 10,
                 .delivered = [&](int, int, uint32_t) { times.push_back(events.now()); }},
                &events);
  for (int i = 0; i < 3; ++i) fabric.Send(0, 0, 0);
  while (events.RunNext()) {
  }
  CHECK(times == std::vector<double>{11, 12, 13});
}

TEST_CASE("more than 64 destinations are served, each once a round") {
  constexpr int kDestinations = 150;
  Network network({1}, std::vector<double>(kDestinations, 1));
  for (const uint32_t chunk : {0, 1}) {
    for (int i = 0; i < kDestinations; ++i) network.fabric().Send(0, i, chunk);
  }
  const std::vector<Arrived> arrived = network.Run();
  REQUIRE(arrived.size() == 2 * kDestinations);
  for (int i = 0; i < 2 * kDestinations; ++i) {
    CHECK(arrived[i].destination == i % kDestinations);
    CHECK(arrived[i].chunk == static_cast<uint32_t>(i / kDestinations));
  }
}

}  // namespace
}  // namespace evenshard
