#include "common/control/etcd/etcd_lease.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_threads.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/testing/await.h"
#include "tests/testing/hand_clock.h"

namespace evenshard {

namespace {

constexpr absl::Duration kTtl = absl::Seconds(6);

// Counts how often somebody asks it for the time.
struct CountingClock final : Clock {
  absl::Time Now() const override {
    const absl::Time now = hand.Now();
    ++times;
    return now;
  }
  bool SleepUntil(absl::Time deadline, const std::stop_token& stop) const override {
    return hand.SleepUntil(deadline, stop);
  }
  int asked() const { return times; }

  HandClock hand;
  mutable std::atomic<int> times = 0;
};

struct Fixture {
  std::optional<std::string> Read(const std::string& key) {
    etcdserverpb::RangeRequest request;
    request.set_key(key);
    const auto response = direct.Range(request, {});
    REQUIRE(response.ok());
    if (response->kvs().empty()) return std::nullopt;
    return response->kvs(0).value();
  }
  void Put(const std::string& key, int64_t lease) {
    etcdserverpb::TxnRequest request;
    PutOnSuccess(key, "value", lease, &request);
    REQUIRE(direct.Txn(request, {}).ok());
  }

  EtcdServer server;
  EtcdClient direct{server.patient()};
  TcpProxy proxy{server.port()};
  RealClock clock;
  EtcdThreads threads{{.endpoints = {proxy.endpoint()}, .timeout = absl::Milliseconds(500)},
                      &clock};
};

}  // namespace

TEST_CASE("a lease is renewed until it is given up, and its keys go with it") {
  REQUIRE_ETCD();
  Fixture etcd;
  EtcdThreads patient({.endpoints = {etcd.server.endpoint()}, .timeout = absl::Seconds(10)},
                      &etcd.clock);
  {
    const EtcdLease lease({.etcd = &patient, .ttl = kTtl});
    AwaitTrue([&] { return lease.id() != 0; });
    CHECK(lease.Surely());
    etcd.Put("/a", lease.id());
    absl::SleepFor(2 * kTtl);
    CHECK(etcd.Read("/a").has_value());
    CHECK(lease.Surely());
    CHECK(lease.trouble().ok());
  }
  CHECK_FALSE(etcd.Read("/a").has_value());
}

TEST_CASE("a lease that cannot be renewed is no longer sure before its keys are gone") {
  REQUIRE_ETCD();
  Fixture etcd;
  // A quarter of it is the room between the two.
  const EtcdLease lease({.etcd = &etcd.threads, .ttl = absl::Seconds(20)});
  AwaitTrue([&] { return lease.id() != 0; });
  etcd.Put("/a", lease.id());
  etcd.proxy.Hold();
  AwaitTrue([&] {
    const bool sure = lease.Surely();
    if (sure) return false;
    CHECK(etcd.Read("/a").has_value());
    return true;
  });
  CHECK(absl::IsUnavailable(lease.trouble()));
  AwaitTrue([&] { return !etcd.Read("/a").has_value(); });
  CHECK_FALSE(lease.Surely());
  CHECK_FALSE(lease.HasEnded());  // as far as it knows
  etcd.proxy.Release();
  AwaitTrue([&] { return lease.HasEnded(); });
  CHECK_FALSE(lease.Surely());
}

TEST_CASE("a short interruption ends no lease") {
  REQUIRE_ETCD();
  Fixture etcd;
  const EtcdLease lease({.etcd = &etcd.threads, .ttl = absl::Seconds(10)});
  AwaitTrue([&] { return lease.id() != 0; });
  etcd.proxy.Hold();
  AwaitTrue([&] { return !lease.trouble().ok(); });
  CHECK(lease.Surely());
  etcd.proxy.Release();
  AwaitTrue([&] { return lease.trouble().ok(); });
  CHECK(lease.Surely());
}

TEST_CASE("a lease counts from when its renewal was sent, by the clock that is given") {
  REQUIRE_ETCD();
  Fixture etcd;
  CountingClock clock;
  EtcdThreads patient({.endpoints = {etcd.proxy.endpoint()}, .timeout = absl::Minutes(1)}, &clock);
  etcd.proxy.Hold();
  const absl::Time sent = clock.hand.Now();
  const EtcdLease lease({.etcd = &patient, .ttl = kTtl});
  // The lease has asked for the time when it was made, and its runner has before it sends.
  AwaitTrue([&] { return clock.asked() == 2; });
  CHECK_FALSE(lease.Surely());
  // The next renewal, which counts from a later time, is not due yet.
  clock.hand.Advance(0.15 * kTtl);
  etcd.proxy.Release();
  AwaitTrue([&] { return lease.id() != 0; });
  CHECK(lease.confirmed() == sent);
  CHECK(lease.Surely());
  etcd.proxy.Hold();
  clock.hand.Advance(0.55 * kTtl);
  CHECK(lease.Surely());
  clock.hand.Advance(0.1 * kTtl);
  CHECK_FALSE(lease.Surely());
  etcd.proxy.Release();
}

TEST_CASE("a lease outlives a restart of etcd, and waits for one that is not up yet") {
  REQUIRE_ETCD();
  Fixture etcd;
  etcd.server.Kill();
  const EtcdLease lease({.etcd = &etcd.threads, .ttl = absl::Seconds(5)});
  AwaitTrue([&] { return !lease.trouble().ok(); });
  CHECK(lease.id() == 0);
  CHECK_FALSE(lease.Surely());
  etcd.server.Start();
  AwaitTrue([&] { return lease.id() != 0; });
  const int64_t id = lease.id();
  etcd.Put("/a", id);
  etcd.server.Kill();
  AwaitTrue([&] { return !lease.trouble().ok(); });
  etcd.server.Start();
  AwaitTrue([&] { return lease.trouble().ok(); });
  CHECK(lease.id() == id);
  CHECK(lease.Surely());
  CHECK(etcd.Read("/a").has_value());
}

}  // namespace evenshard
