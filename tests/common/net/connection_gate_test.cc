#include "common/net/connection_gate.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace evenshard {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

// As a config with these has them.
Strangers Limits(int connections, int handshakes, int per_second, int readers = 64) {
  Strangers limits;
  limits.set_connections(connections);
  limits.set_handshakes(handshakes);
  limits.set_handshakes_per_second(per_second);
  limits.set_handshake_seconds(10);
  limits.set_readers(readers);
  ClusterConfig config;
  *config.mutable_limits()->mutable_strangers() = limits;
  return StrangersOf(config);
}

bool ComesIn(ConnectionGate* gate, int connection, const std::string& host, absl::Time now) {
  if (!gate->LetsIn(host, now)) return false;
  gate->Arrive(connection, host, now);
  return true;
}

absl::Time After(double seconds) { return kStart + absl::Seconds(seconds); }

TEST_CASE("limits that the config leaves out have room for all workers") {
  ClusterConfig config;
  config.set_workers(2);
  CHECK(StrangersOf(config).connections() == 4096);
  CHECK(StrangersOf(config).handshakes() == 64);
  CHECK(StrangersOf(config).handshakes_per_second() == 200);
  config.mutable_security()->set_certificate("shard.pem");
  config.set_workers(1);
  CHECK(StrangersOf(config).handshakes_per_second() == 50);
  CHECK(StrangersOf(config).asking_burst_bytes() == 65536);
  config.set_workers(2000);
  config.mutable_limits()->set_connections(3);
  CHECK(StrangersOf(config).connections() == 16000);
  CHECK(StrangersOf(config).handshakes() == 8000);
  CHECK(StrangersOf(config).handshakes_per_second() == 64000);
  CHECK(StrangersOf(config).asking_burst_bytes() == 8000 * 4096);
  config.mutable_limits()->mutable_strangers()->set_handshakes(5);
  CHECK(StrangersOf(config).handshakes() == 5);
}

TEST_CASE("all limits that are in effect can be shown") {
  const Strangers limits = StrangersOf(ClusterConfig());
  for (int i = 0; i < Strangers::descriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = Strangers::descriptor()->field(i);
    CAPTURE(field->name());
    CHECK(Strangers::GetReflection()->HasField(limits, field));
  }
}

TEST_CASE("no more connections than allowed are open, known or not") {
  ConnectionGate gate(Limits(3, 100, 100));
  for (int i = 0; i < 3; ++i) CHECK(ComesIn(&gate, i, "a", kStart));
  gate.BecomeKnown(0, /*sends_data=*/true);
  // While one is not known, it goes for another one.
  CHECK(gate.LetsIn("b", kStart));
  CHECK(gate.Arrive(3, "b", kStart) == 1);
  CHECK(gate.counts().open == 3);
  CHECK(gate.counts().unknown == 2);
  for (const int connection : {2, 3}) gate.BecomeKnown(connection, /*sends_data=*/true);
  CHECK_FALSE(ComesIn(&gate, 4, "a", kStart));
  CHECK_FALSE(ComesIn(&gate, 4, "b", kStart));
  CHECK(gate.counts().open == 3);
  CHECK(gate.counts().turned_away == 2);
  gate.End(0);
  CHECK(ComesIn(&gate, 4, "b", kStart));
  CHECK(gate.counts().open == 3);
  CHECK(gate.counts().accepted == 5);
}

TEST_CASE("those who only ask have half of the places, and push out themselves") {
  ConnectionGate gate(Limits(8, 100, 1000));
  CHECK(ComesIn(&gate, 0, "operator", kStart));
  CHECK(gate.BecomeKnown(0, /*sends_data=*/false) == std::nullopt);
  std::vector<int> pushed_out;
  for (int i = 1; i <= 20; ++i) {
    CHECK(ComesIn(&gate, i, "reader", kStart));
    const std::optional<int> goes = gate.BecomeKnown(i, /*sends_data=*/false);
    if (goes.has_value()) pushed_out.push_back(*goes);
  }
  CHECK(gate.counts().open == 4);
  CHECK(gate.counts().pushed_out == 17);
  CHECK(pushed_out.front() == 1);
  CHECK(pushed_out.back() == 17);
  for (int i = 21; i < 25; ++i) {
    CHECK(ComesIn(&gate, i, "worker", kStart));
    CHECK(gate.BecomeKnown(i, /*sends_data=*/true) == std::nullopt);
  }
  // Who is in stays in.
  CHECK_FALSE(ComesIn(&gate, 25, "worker", kStart));
}

TEST_CASE("those who only ask have as many places as is said, if half of all are more") {
  for (const int readers : {2, 6}) {
    ConnectionGate gate(Limits(8, 100, 1000, readers));
    for (int i = 0; i < 6; ++i) {
      CHECK(ComesIn(&gate, i, "reader", kStart));
      gate.BecomeKnown(i, /*sends_data=*/false);
    }
    CHECK(gate.counts().readers == static_cast<uint64_t>(std::min(readers, 4)));
  }
}

TEST_CASE("hosts are barred while they are too fast, or one of theirs was too loud") {
  ConnectionGate gate(Limits(100, 100, 4));
  CHECK(gate.Barred(kStart).empty());
  CHECK(ComesIn(&gate, 1, "fast", kStart));
  CHECK(gate.Barred(kStart).empty());
  CHECK(ComesIn(&gate, 2, "fast", After(0.5)));
  CHECK(ComesIn(&gate, 3, "loud", After(0.5)));
  CHECK(gate.Barred(After(0.5)) == std::vector<std::string>{"fast"});
  CHECK_FALSE(gate.LetsIn("fast", After(0.5)));
  gate.Shun(3, After(0.6));
  CHECK(gate.Barred(After(0.9)) == std::vector<std::string>{"fast", "loud"});
  CHECK(gate.Barred(After(1.1)) == std::vector<std::string>{"loud"});
  CHECK(gate.LetsIn("fast", After(1.1)));
  CHECK_FALSE(gate.LetsIn("loud", After(1.1)));
  CHECK(gate.Barred(After(1.7)).empty());
  CHECK(gate.LetsIn("loud", After(1.7)));
}

TEST_CASE("a further one takes the place of the oldest of the host that has most") {
  ConnectionGate gate(Limits(100, 4, 100));
  CHECK(ComesIn(&gate, 0, "honest", kStart));
  for (int i = 1; i < 4; ++i) CHECK(ComesIn(&gate, i, "flood", kStart));
  CHECK(gate.LetsIn("other", kStart));
  CHECK(gate.Arrive(4, "other", kStart) == 1);
  // The flood pushes out itself.
  CHECK(gate.Arrive(5, "flood", kStart) == 2);
  CHECK(gate.counts().unknown == 4);
  CHECK(gate.counts().pushed_out == 2);
  // Those that are known hold no place.
  gate.BecomeKnown(0, /*sends_data=*/true);
  CHECK(gate.Arrive(6, "third", kStart) == std::nullopt);
}

TEST_CASE("one host begins half of the connections of a second, and all hosts together no more") {
  ConnectionGate gate(Limits(100, 100, 4));
  int next = 0;
  const auto arrives = [&](const char* host, double at) {
    return ComesIn(&gate, next++, host, After(at));
  };
  CHECK(arrives("a", 0));
  CHECK(arrives("a", 0.5));
  CHECK_FALSE(arrives("a", 0.6));
  CHECK(arrives("b", 0.6));
  CHECK(arrives("c", 0.6));
  CHECK_FALSE(arrives("d", 0.6));
  // Those that were turned away do not count.
  CHECK(arrives("a", 1.1));
  CHECK_FALSE(arrives("a", 1.2));
  CHECK(arrives("a", 1.6));
}

TEST_CASE("even a rate of one lets somebody in") {
  ConnectionGate gate(Limits(100, 1, 1));
  CHECK(ComesIn(&gate, 0, "a", kStart));
  CHECK_FALSE(ComesIn(&gate, 1, "b", After(0.9)));
  CHECK(gate.Arrive(1, "b", After(1)) == 0);
}

TEST_CASE("who is not known in time goes") {
  ConnectionGate gate(Limits(100, 100, 100));
  CHECK(gate.next_overdue() == absl::InfiniteFuture());
  gate.Arrive(0, "a", kStart);
  gate.Arrive(1, "a", After(1));
  gate.Arrive(2, "a", After(2));
  CHECK(gate.next_overdue() == After(10));
  gate.BecomeKnown(0, /*sends_data=*/true);
  CHECK(gate.next_overdue() == After(11));
  CHECK(gate.TakeOverdue(After(10.9)).empty());
  CHECK(gate.TakeOverdue(After(12)) == std::vector{1, 2});
  CHECK(gate.counts().timed_out == 2);
  CHECK(gate.counts().open == 1);
  CHECK(gate.next_overdue() == absl::InfiniteFuture());
}

TEST_CASE("nobody comes in for a second from a host that has misbehaved") {
  ConnectionGate gate(Limits(100, 100, 100));
  gate.Arrive(0, "bad", kStart);
  gate.Arrive(1, "good", kStart);
  SECTION("known") { gate.BecomeKnown(0, /*sends_data=*/false); }
  SECTION("not known") {}
  gate.Shun(0, After(5));
  gate.End(0);
  CHECK_FALSE(ComesIn(&gate, 2, "bad", After(5.9)));
  CHECK(ComesIn(&gate, 2, "good", After(5.9)));
  CHECK(gate.counts().open == 2);
  CHECK(ComesIn(&gate, 3, "bad", After(6)));
}

TEST_CASE("who goes twice, or is known late, changes nothing") {
  ConnectionGate gate(Limits(100, 100, 100));
  gate.Arrive(0, "a", kStart);
  gate.End(0);
  gate.End(0);
  gate.BecomeKnown(0, /*sends_data=*/true);
  CHECK(gate.counts().open == 0);
}

}  // namespace
}  // namespace evenshard
