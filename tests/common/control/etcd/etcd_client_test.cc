#include "common/control/etcd/etcd_client.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "common/control/etcd/etcd_keys.h"
#include "grpcpp/grpcpp.h"
#include "proto/etcd/rpc.grpc.pb.h"
#include "tests/common/control/etcd/changed_users.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/testing/local_server.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

namespace {

using Catch::Contains;
using etcdserverpb::TxnRequest;

etcdserverpb::RangeRequest One(const std::string& key) {
  etcdserverpb::RangeRequest request;
  request.set_key(key);
  return request;
}

TxnRequest Put(const std::string& key, const std::string& value, int64_t lease = 0) {
  TxnRequest request;
  PutOnSuccess(key, value, lease, &request);
  return request;
}

// An etcd of a member that has no vote yet, as etcd 3.6 answers.
class Learner final : public etcdserverpb::KV::Service {
 public:
  const std::string& endpoint() const { return server_.address(); }

  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest*,
                     etcdserverpb::RangeResponse*) override {
    return {grpc::StatusCode::FAILED_PRECONDITION, "etcdserver: rpc not supported for learner"};
  }

 private:
  const LocalServer server_{this};
};

// An endpoint at which nobody listens.
std::string Nobody() { return absl::StrCat("127.0.0.1:", FreePort()); }

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

TEST_CASE("a token that is older than etcd's users is got anew, and its refusal is no end") {
  ChangedUsers server;
  EtcdClient client(
      {.endpoints = {server.endpoint()}, .access = server.access(), .timeout = absl::Seconds(30)});
  REQUIRE(client.Range(One("/a"), {}).ok());
  server.Change();
  CHECK(absl::IsUnavailable(client.Range(One("/a"), {}).status()));
  CHECK(client.Range(One("/a"), {}).ok());
}

TEST_CASE("where a member has no vote, another one is asked") {
  REQUIRE_ETCD();
  const Learner learner;
  EtcdClient alone({.endpoints = {learner.endpoint()}});
  CHECK(absl::IsUnavailable(alone.Range(One("/a"), {}).status()));
  const EtcdServer server;
  EtcdClient client(
      {.endpoints = {learner.endpoint(), server.endpoint()}, .timeout = absl::Seconds(30)});
  CHECK(client.Range(One("/a"), {}).ok());
}

TEST_CASE("a transaction changes keys only where its comparisons hold") {
  REQUIRE_ETCD();
  const EtcdServer server;
  EtcdClient client(server.patient());
  const auto written = client.Txn(Put("/a", "1"), {});
  REQUIRE(written.ok());
  CHECK(written->succeeded());
  const auto read = client.Range(One("/a"), {});
  REQUIRE(read.ok());
  REQUIRE(read->kvs_size() == 1);
  CHECK(read->kvs(0).value() == "1");
  CHECK(read->kvs(0).create_revision() == written->header().revision());

  TxnRequest create = Put("/a", "2");
  CompareCreateRevision("/a", 0, &create);
  ReadOnFailure("/b", &create);
  ReadOnFailure("/a", &create);
  const auto refused = client.Txn(create, {});
  REQUIRE(refused.ok());
  CHECK_FALSE(refused->succeeded());
  CHECK(ReadKey(*refused, 0) == nullptr);
  REQUIRE(ReadKey(*refused, 1) != nullptr);
  CHECK(ReadKey(*refused, 1)->value() == "1");

  TxnRequest replace = Put("/a", "3");
  CompareModRevision("/a", written->header().revision(), &replace);
  CHECK(client.Txn(replace, {})->succeeded());
  CHECK_FALSE(client.Txn(replace, {})->succeeded());
}

TEST_CASE("keys go with their lease, and a comparison knows it") {
  REQUIRE_ETCD();
  const EtcdServer server;
  EtcdClient client(server.patient());
  const auto lease = client.Grant(absl::Milliseconds(59500), {});
  REQUIRE(lease.ok());
  CHECK(lease->ttl() == 60);
  REQUIRE(client.Txn(Put("/a", "1", lease->id()), {}).ok());
  TxnRequest mine = Put("/b", "");
  CompareLease("/a", lease->id(), &mine);
  CHECK(client.Txn(mine, {})->succeeded());
  CHECK(client.KeepAlive(lease->id(), {}).ok());
  CHECK(client.Revoke(lease->id(), {}).ok());
  CHECK(client.Range(One("/a"), {})->kvs().empty());
  CHECK_FALSE(client.Txn(mine, {})->succeeded());

  CHECK(absl::IsNotFound(client.KeepAlive(lease->id(), {})));
  CHECK(client.Revoke(lease->id(), {}).ok());
  const absl::Status late = client.Txn(Put("/a", "1", lease->id()), {}).status();
  CHECK(absl::IsNotFound(late));
  CHECK_THAT(MessageOf(late), Contains(server.endpoint()));
}

TEST_CASE("an error names what was tried where") {
  const std::string first = Nobody();
  const std::string second = Nobody();
  EtcdClient client({.endpoints = {first, second}, .timeout = absl::Milliseconds(250)});
  const absl::Status status = client.Range(One("/a"), {}).status();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(MessageOf(status),
             Contains("etcd cannot read /a; tried " + first + " (no connection within 250ms)") &&
                 Contains(", " + second + " (no connection within 250ms)"));
  CHECK(absl::IsUnavailable(client.Grant(absl::Seconds(2), {}).status()));
  CHECK(absl::IsUnavailable(client.KeepAlive(1, {})));
  CHECK(absl::IsUnavailable(client.Revoke(1, {})));
}

TEST_CASE("an endpoint that is away or hangs is passed over") {
  REQUIRE_ETCD();
  const EtcdServer server;
  TcpProxy hanging(server.port());
  hanging.Hold();
  EtcdClient client({.endpoints = {Nobody(), hanging.endpoint(), server.endpoint()},
                     .timeout = absl::Seconds(3)});
  CHECK(client.Txn(Put("/a", "1"), {}).ok());
  const auto lease = client.Grant(absl::Seconds(60), {});
  REQUIRE(lease.ok());
  CHECK(client.KeepAlive(lease->id(), {}).ok());
}

TEST_CASE("an etcd that answers late is told from one that answers never") {
  REQUIRE_ETCD();
  const EtcdServer server;
  TcpProxy proxy(server.port());
  EtcdClient client({.endpoints = {proxy.endpoint()}, .timeout = absl::Seconds(4)});
  proxy.Delay(absl::Milliseconds(50));
  CHECK(client.Range(One("/a"), {}).ok());
  proxy.Hold();
  const absl::Status hangs = client.Range(One("/a"), {}).status();
  CHECK(absl::IsUnavailable(hangs));
  CHECK_THAT(MessageOf(hangs), Contains(proxy.endpoint() + " (no answer within 4s)"));
  const absl::Status renewal = client.KeepAlive(1, {});
  CHECK_THAT(MessageOf(renewal), Contains("no answer within 4s"));
  proxy.Release();
  CHECK(client.Range(One("/a"), {}).ok());
}

TEST_CASE("a stop ends a call that waits") {
  REQUIRE_ETCD();
  const EtcdServer server;
  TcpProxy proxy(server.port());
  proxy.Hold();
  EtcdClient client({.endpoints = {proxy.endpoint(), proxy.endpoint()}, .timeout = absl::Hours(1)});
  std::stop_source stop;
  const std::jthread stopper([&] {
    absl::SleepFor(absl::Milliseconds(100));
    stop.request_stop();
  });
  CHECK(absl::IsCancelled(client.Range(One("/a"), stop.get_token()).status()));
}

}  // namespace evenshard
