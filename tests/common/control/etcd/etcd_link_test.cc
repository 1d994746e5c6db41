#include "common/control/etcd/etcd_link.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/control/etcd/etcd_threads.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/testing/await.h"
#include "tests/testing/thread_check.h"

namespace evenshard {

namespace {

using Catch::Contains;

ProcessState Ps(uint32_t index, uint64_t incarnation) {
  ProcessState state;
  state.set_ps(index);
  state.set_incarnation(incarnation);
  state.set_address(absl::StrCat("host-", incarnation, ":1"));
  return state;
}

View NumberedView(uint64_t number) {
  View view;
  view.set_number(number);
  return view;
}

// A link and what its listener has heard.
class Follower {
 public:
  explicit Follower(const EtcdLink::Options& options) : link_(options) {
    link_.Start({.on_view =
                     [this](const View& view) {
                       absl::MutexLock lock(&mutex_);
                       ThreadCheck(!end_.has_value());
                       numbers_.push_back(view.number());
                     },
                 .on_end =
                     [this](const absl::Status& reason) {
                       absl::MutexLock lock(&mutex_);
                       ThreadCheck(!end_.has_value());
                       end_ = reason;
                     }});
  }

  EtcdLink& link() { return link_; }
  std::vector<uint64_t> numbers() const {
    absl::MutexLock lock(&mutex_);
    return numbers_;
  }
  std::optional<absl::Status> end() const {
    absl::MutexLock lock(&mutex_);
    return end_;
  }
  absl::Status AwaitEnd() const {
    AwaitTrue([&] { return end().has_value(); });
    return *end();
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<uint64_t> numbers_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  EtcdLink link_;
};

struct Fixture {
  std::shared_ptr<EtcdRuntime> Threads(const std::string& endpoint) const {
    return std::make_shared<EtcdThreads>(
        EtcdClient::Options{.endpoints = {endpoint}, .timeout = absl::Milliseconds(500)}, &clock);
  }
  EtcdLink::Options Options() const {
    return {.etcd = Threads(proxy.endpoint()),
            .run = "test",
            .ttl = absl::Seconds(4),
            .startup = absl::Seconds(60),
            .patience = absl::Seconds(60)};
  }
  std::optional<ProcessState> Read(const ProcessState& place) {
    etcdserverpb::RangeRequest request;
    request.set_key(keys.Process(place));
    const auto response = direct.Range(request, {});
    REQUIRE(response.ok());
    if (response->kvs().empty()) return std::nullopt;
    ProcessState state;
    REQUIRE(state.ParseFromString(response->kvs(0).value()));
    return state;
  }
  void Put(const std::string& key, const std::string& value) {
    etcdserverpb::TxnRequest request;
    PutOnSuccess(key, value, 0, &request);
    REQUIRE(direct.Txn(request, {}).ok());
  }
  void PutVerdict(const std::string& key, const absl::Status& status, uint64_t incarnation = 0) {
    Verdict verdict;
    verdict.set_code(status.raw_code());
    verdict.set_reason(std::string(status.message()));
    verdict.set_incarnation(incarnation);
    Put(key, verdict.SerializeAsString());
  }

  EtcdServer server;
  EtcdClient direct{server.patient()};
  TcpProxy proxy{server.port()};
  RealClock clock;
  const EtcdKeys keys{"test"};
};

}  // namespace

TEST_CASE("options follow the config, with a lease of whole seconds") {
  ClusterConfig config;
  config.mutable_recovery()->set_silence_seconds(0.3);
  CHECK(EtcdLink::OptionsOf(config, nullptr).ttl == absl::Seconds(2));
  CHECK(EtcdLink::OptionsOf(config, nullptr).run == "evenshard");
  config.mutable_recovery()->set_silence_seconds(4.1);
  CHECK(EtcdLink::OptionsOf(config, nullptr).ttl == absl::Seconds(5));
}

TEST_CASE("a process has its place while it lives, with what it said last") {
  REQUIRE_ETCD();
  Fixture etcd;
  {
    Follower follower(etcd.Options());
    CHECK_FALSE(follower.link().HoldsRoles());
    ProcessState state = Ps(3, 7);
    follower.link().Announce(state);
    AwaitTrue([&] { return follower.link().HoldsRoles(); });
    CHECK(etcd.Read(state)->incarnation() == 7);
    for (uint64_t view = 1; view <= 20; ++view) {
      state.set_view(view);
      follower.link().Announce(state);
    }
    AwaitTrue([&] { return etcd.Read(state)->view() == 20; });
    CHECK_FALSE(follower.end().has_value());
  }
  CHECK_FALSE(etcd.Read(Ps(3, 7)).has_value());
}

// Has machines that the test runs, in the order in which they were made.
class ManualRuntime final : public EtcdRuntime {
 public:
  std::unique_ptr<EtcdRunner> MakeRunner(EtcdMachine* machine) override {
    machines.push_back(machine);
    return std::make_unique<Runner>();
  }
  std::unique_ptr<EtcdWatchStream> Watch(const etcdserverpb::WatchCreateRequest&,
                                         std::function<void()>) override {
    return nullptr;
  }
  absl::Status Revoke(int64_t) override { return absl::OkStatus(); }
  absl::Duration timeout() const override { return absl::Seconds(1); }
  const Clock& clock() const override { return clock_; }

  std::vector<EtcdMachine*> machines;

 private:
  class Runner final : public EtcdRunner {
    void Start() override {}
    void Stop() override {}
    void Wake() override {}
  };
  const RealClock clock_;
};

TEST_CASE("what a process said before comes not after what it said last, however late it arrives") {
  const auto etcd = std::make_shared<ManualRuntime>();
  EtcdLink link({.etcd = etcd,
                 .run = "test",
                 .ttl = absl::Seconds(2),
                 .startup = absl::Seconds(60),
                 .patience = absl::Seconds(60)});
  link.Start({[](const View&) {}, [](const absl::Status&) {}});
  EtcdMachine& place = *etcd->machines[0];
  EtcdMachine& lease = *etcd->machines[1];
  absl::Time now = etcd->clock().Now();
  lease.Next(now);
  lease.Answered(int64_t{7}, now);
  const auto ask = [&] {
    now += absl::Seconds(1);
    const EtcdMachine::Step step = place.Next(now);
    return std::get<etcdserverpb::TxnRequest>(std::get<EtcdRequest>(step));
  };
  // The revision at which the key must have been changed last.
  const auto follows = [](const etcdserverpb::TxnRequest& request) -> int64_t {
    for (const auto& compare : request.compare()) {
      if (compare.target() == etcdserverpb::Compare::MOD) return compare.mod_revision();
    }
    return -1;
  };
  const auto succeed = [&](int64_t revision) {
    etcdserverpb::TxnResponse response;
    response.set_succeeded(true);
    response.mutable_header()->set_revision(revision);
    place.Answered(response, now);
  };
  ProcessState state = Ps(0, 3);
  link.Announce(state);
  ask();
  succeed(10);
  state.set_view(6);
  link.Announce(state);
  CHECK(follows(ask()) == 10);
  place.Answered(absl::UnavailableError("no answer"), now);
  CHECK(follows(ask()) == 10);
  succeed(11);
  state.set_view(7);
  link.Announce(state);
  CHECK(follows(ask()) == 11);  // so that the request without an answer has no effect any more
  // That one came first: nothing is lost, and the place is not given up.
  etcdserverpb::TxnResponse late;
  mvccpb::KeyValue& key = *late.add_responses()->mutable_response_range()->add_kvs();
  key.set_lease(7);
  key.set_mod_revision(12);
  place.Answered(late, now);
  CHECK(follows(ask()) == 12);
  succeed(13);
  CHECK(std::holds_alternative<absl::Time>(place.Next(now + absl::Seconds(1))));
  CHECK(link.HoldsRoles());
}

TEST_CASE("views come in order, and never an older one") {
  REQUIRE_ETCD();
  Fixture etcd;
  etcd.Put(etcd.keys.view(), NumberedView(4).SerializeAsString());
  Follower follower(etcd.Options());
  AwaitTrue([&] { return follower.numbers().size() == 1; });
  for (const uint64_t number : {5, 3, 5, 6}) {
    etcd.Put(etcd.keys.view(), NumberedView(number).SerializeAsString());
  }
  AwaitTrue([&] { return follower.numbers().back() == 6; });
  CHECK(follower.numbers() == std::vector<uint64_t>{4, 5, 6});
  // Also by a server that was put back from an older copy of itself.
  etcd.proxy.Hold();
  etcd.server.Kill();
  etcd.server.Start();
  etcd.Put(etcd.keys.view(), NumberedView(2).SerializeAsString());
  etcd.proxy.Release();
  etcd.Put(etcd.keys.view(), NumberedView(7).SerializeAsString());
  AwaitTrue([&] { return follower.numbers().back() == 7; });
  CHECK(follower.numbers() == std::vector<uint64_t>{4, 5, 6, 7});
}

TEST_CASE("a place passes to a new start when its predecessor's lease has ended") {
  REQUIRE_ETCD();
  Fixture etcd;
  TcpProxy other(etcd.server.port());
  Follower first(etcd.Options());
  first.link().Announce(Ps(1, 11));
  AwaitTrue([&] { return first.link().HoldsRoles(); });
  EtcdLink::Options options = etcd.Options();
  options.etcd = etcd.Threads(other.endpoint());
  Follower second(options);
  second.link().Announce(Ps(1, 12));
  etcd.proxy.Hold();  // the first one cannot renew its lease
  AwaitTrue([&] {
    // Never both.
    const bool second_holds = second.link().HoldsRoles();
    CHECK_FALSE((second_holds && first.link().HoldsRoles()));
    return second_holds;
  });
  CHECK(etcd.Read(Ps(1, 0))->incarnation() == 12);
  etcd.proxy.Release();
  const absl::Status end = first.AwaitEnd();
  CHECK(absl::IsUnavailable(end));
  CHECK_THAT(std::string(end.message()), Contains("lease in etcd has ended"));
  CHECK_FALSE(first.link().HoldsRoles());
  CHECK(etcd.Read(Ps(1, 0))->incarnation() == 12);
}

TEST_CASE("of two processes with the same index the second one ends, and says why") {
  REQUIRE_ETCD();
  Fixture etcd;
  Follower first(etcd.Options());
  first.link().Announce(Ps(1, 11));
  AwaitTrue([&] { return first.link().HoldsRoles(); });
  Follower second(etcd.Options());
  second.link().Announce(Ps(1, 12));
  const absl::Status end = second.AwaitEnd();
  CHECK(absl::IsAlreadyExists(end));
  CHECK_THAT(std::string(end.message()),
             Contains("the place of ps 1 is held by another process at host-11:1"));
  CHECK(first.link().HoldsRoles());
  CHECK_FALSE(first.end().has_value());
}

TEST_CASE("an etcd that stays away ends the process, with what was tried") {
  RealClock clock;
  const std::string nobody = absl::StrCat("127.0.0.1:", FreePort());
  Follower follower(
      {.etcd = std::make_shared<EtcdThreads>(
           EtcdClient::Options{.endpoints = {nobody}, .timeout = absl::Milliseconds(200)}, &clock),
       .run = "test",
       .ttl = absl::Seconds(2),
       .startup = absl::Seconds(1),
       .patience = absl::Hours(1)});
  follower.link().Announce(Ps(0, 1));
  const absl::Status end = follower.AwaitEnd();
  CHECK(absl::IsDeadlineExceeded(end));
  CHECK_THAT(std::string(end.message()),
             Contains("etcd has not answered for ") && Contains(nobody + " (no connection"));
}

TEST_CASE("the run's failure ends every process, and whoever comes later") {
  REQUIRE_ETCD();
  Fixture etcd;
  Follower follower(etcd.Options());
  follower.link().Announce(Ps(0, 1));
  AwaitTrue([&] { return follower.link().HoldsRoles(); });
  etcd.PutVerdict(etcd.keys.end(), absl::AbortedError("worker 2 died"));
  CHECK(follower.AwaitEnd() == absl::AbortedError("worker 2 died"));
  CHECK_FALSE(follower.link().HoldsRoles());
  Follower late(etcd.Options());
  late.link().Announce(Ps(1, 2));
  const absl::Status end = late.AwaitEnd();
  CHECK(absl::IsFailedPrecondition(end));
  CHECK_THAT(std::string(end.message()),
             Contains("the run of this name in etcd is over: worker 2 died; to begin another, "
                      "change recovery.etcd.run or delete the keys that begin with "
                      "/evenshard/test/"));
}

TEST_CASE("the run's success ends only who comes later") {
  REQUIRE_ETCD();
  Fixture etcd;
  Follower follower(etcd.Options());
  follower.link().Announce(Ps(0, 1));
  AwaitTrue([&] { return follower.link().HoldsRoles(); });
  etcd.PutVerdict(etcd.keys.end(), absl::OkStatus());
  Follower late(etcd.Options());
  late.link().Announce(Ps(1, 2));
  const absl::Status end = late.AwaitEnd();
  CHECK(absl::IsFailedPrecondition(end));
  CHECK_THAT(std::string(end.message()), Contains("is over: it has succeeded"));
  CHECK(follower.link().HoldsRoles());
}

TEST_CASE("a refusal ends the start of the process that it names") {
  REQUIRE_ETCD();
  Fixture etcd;
  Follower follower(etcd.Options());
  follower.link().Announce(Ps(0, 2));
  AwaitTrue([&] { return follower.link().HoldsRoles(); });
  const absl::Status refusal = absl::FailedPreconditionError("ps 0 has another config");
  etcd.PutVerdict(etcd.keys.Refused(Ps(0, 0)), refusal, 1);
  etcd.PutVerdict(etcd.keys.Refused(Ps(1, 0)), refusal, 2);
  etcd.Put(etcd.keys.view(), NumberedView(1).SerializeAsString());
  AwaitTrue([&] { return !follower.numbers().empty(); });
  CHECK_FALSE(follower.end().has_value());
  etcd.PutVerdict(etcd.keys.Refused(Ps(0, 0)), refusal, 2);
  CHECK(follower.AwaitEnd() == refusal);
}

}  // namespace evenshard
