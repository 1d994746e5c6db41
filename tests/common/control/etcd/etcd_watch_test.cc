#include "common/control/etcd/etcd_watch.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_threads.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "proto/etcd/rpc.grpc.pb.h"
#include "tests/common/control/etcd/changed_users.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/testing/await.h"

namespace evenshard {

namespace {

using Heard = std::vector<std::string>;

// What a watch has brought: "[/a=1 /b=2]" for all keys, "/a=1" and "-/a" for a change.
class Diary {
 public:
  EtcdWatch::Listener listener() {
    return {.on_keys =
                [this](const std::vector<mvccpb::KeyValue>& keys) {
                  std::string all = "[";
                  for (const mvccpb::KeyValue& key : keys) {
                    absl::StrAppend(&all, all.size() > 1 ? " " : "", key.key(), "=", key.value());
                  }
                  Add(all + "]");
                },
            .on_event =
                [this](const mvccpb::Event& event) {
                  Add(event.type() == mvccpb::Event::DELETE
                          ? "-" + event.kv().key()
                          : absl::StrCat(event.kv().key(), "=", event.kv().value()));
                }};
  }
  Heard heard() const {
    absl::MutexLock lock(&mutex_);
    return heard_;
  }

 private:
  void Add(std::string text) {
    absl::MutexLock lock(&mutex_);
    heard_.push_back(std::move(text));
  }

  mutable absl::Mutex mutex_;
  Heard heard_ ABSL_GUARDED_BY(mutex_);
};

struct Fixture {
  int64_t Put(const std::string& key, const std::string& value) {
    etcdserverpb::TxnRequest request;
    PutOnSuccess(key, value, 0, &request);
    const auto response = direct.Txn(request, {});
    REQUIRE(response.ok());
    return response->header().revision();
  }
  void Delete(const std::string& key) {
    etcdserverpb::TxnRequest request;
    request.add_success()->mutable_request_delete_range()->set_key(key);
    REQUIRE(direct.Txn(request, {}).ok());
  }
  void Compact(int64_t revision) {
    const auto stub = etcdserverpb::KV::NewStub(
        grpc::CreateChannel(server.endpoint(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    etcdserverpb::CompactionRequest request;
    request.set_revision(revision);
    etcdserverpb::CompactionResponse response;
    REQUIRE(stub->Compact(&context, request, &response).ok());
  }

  EtcdServer server;
  EtcdClient direct{server.patient()};
  TcpProxy proxy{server.port()};
  RealClock clock;
  EtcdThreads threads{{.endpoints = {proxy.endpoint()}, .timeout = absl::Milliseconds(300)},
                      &clock};
  Diary diary;
};

}  // namespace

TEST_CASE("a watch brings what there is and every change, of its prefix only") {
  REQUIRE_ETCD();
  Fixture etcd;
  etcd.Put("/run/a", "1");
  etcd.Put("/runs", "x");
  const EtcdWatch watch({&etcd.threads, "/run/"}, etcd.diary.listener());
  AwaitTrue([&] { return etcd.diary.heard().size() == 1; });
  etcd.Put("/run/b", "2");
  etcd.Put("/runs", "y");
  etcd.Put("/run/a", "3");
  etcd.Delete("/run/b");
  AwaitTrue([&] { return etcd.diary.heard().size() == 4; });
  CHECK(etcd.diary.heard() == Heard{"[/run/a=1]", "/run/b=2", "/run/a=3", "-/run/b"});
}

TEST_CASE("a watch misses and repeats nothing across a restart of etcd") {
  REQUIRE_ETCD();
  Fixture etcd;
  const EtcdWatch watch({&etcd.threads, "/run/"}, etcd.diary.listener());
  etcd.Put("/run/a", "1");
  AwaitTrue([&] { return !etcd.diary.heard().empty() && etcd.diary.heard().back() != "[]"; });
  Heard expected = etcd.diary.heard();
  etcd.proxy.Hold();
  etcd.server.Kill();
  etcd.server.Start();
  etcd.Put("/run/a", "2");
  etcd.Put("/run/a", "3");
  etcd.proxy.Release();
  expected.insert(expected.end(), {"/run/a=2", "/run/a=3"});
  AwaitTrue([&] { return etcd.diary.heard().size() >= expected.size(); });
  CHECK(etcd.diary.heard() == expected);
}

TEST_CASE("a watch whose changes are compacted reads everything anew") {
  REQUIRE_ETCD();
  Fixture etcd;
  const EtcdWatch watch({&etcd.threads, "/run/"}, etcd.diary.listener());
  AwaitTrue([&] { return !etcd.diary.heard().empty(); });
  etcd.proxy.Hold();
  etcd.server.Kill();  // and with it what is on its way
  etcd.server.Start();
  etcd.Put("/run/a", "1");
  etcd.Put("/run/b", "1");
  etcd.Put("/run/a", "2");
  etcd.Delete("/run/b");
  etcd.Compact(etcd.Put("/run/a", "3"));
  etcd.proxy.Release();
  AwaitTrue([&] { return etcd.diary.heard().back() == "[/run/a=3]"; });
  etcd.Put("/run/a", "4");
  AwaitTrue([&] { return etcd.diary.heard().back() == "/run/a=4"; });
}

TEST_CASE("a watch gets another token when its own is refused") {
  ChangedUsers server;
  const RealClock clock;
  EtcdThreads threads({.endpoints = {server.endpoint()}, .access = server.access()}, &clock);
  Diary diary;
  const EtcdWatch watch({.etcd = &threads, .prefix = "/a"}, diary.listener());
  AwaitTrue([&] { return diary.heard() == Heard{"[]"}; });
  server.Change();
  AwaitTrue([&] { return diary.heard().size() > 1; });
}

TEST_CASE("a watch leaves an endpoint that has become silent") {
  REQUIRE_ETCD();
  Fixture etcd;
  TcpProxy other(etcd.server.port());
  EtcdThreads threads(
      {.endpoints = {etcd.proxy.endpoint(), other.endpoint()}, .timeout = absl::Seconds(2)},
      &etcd.clock);
  const EtcdWatch watch({&threads, "/run/"}, etcd.diary.listener());
  etcd.Put("/run/a", "1");
  AwaitTrue([&] { return !etcd.diary.heard().empty(); });
  // A quiet stream is no silent one: it is asked, and answers.
  absl::SleepFor(absl::Seconds(5));
  CHECK(other.connections() == 0);
  etcd.proxy.Hold();
  etcd.Put("/run/a", "2");
  AwaitTrue([&] { return etcd.diary.heard().back() == "/run/a=2"; });
}

TEST_CASE("a watch that waits for an etcd that is away can be ended") {
  RealClock clock;
  Diary diary;
  EtcdThreads threads({.endpoints = {absl::StrCat("127.0.0.1:", FreePort())}}, &clock);
  const EtcdWatch watch({&threads, "/run/"}, diary.listener());
  absl::SleepFor(absl::Milliseconds(100));
  CHECK(diary.heard().empty());
}

}  // namespace evenshard
