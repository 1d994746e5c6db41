#include "common/control/etcd/etcd_coordinator.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/control/etcd/coordinator_term.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_threads.h"
#include "proto/etcd/verdict.pb.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/testing/await.h"

namespace evenshard {

namespace {

ViewCoordinator::Settings OneShard() {
  ViewCoordinator::Settings settings{.slots = 1, .workers = 1, .config_fingerprint = 42, .run = 3};
  settings.recovery.set_silence_seconds(2);
  settings.recovery.set_worker_loss(Recovery::WAIT);
  return settings;
}

ProcessState Ps(uint64_t incarnation) {
  ProcessState state;
  state.set_ps(0);
  state.set_incarnation(incarnation);
  state.set_config_fingerprint(42);
  return state;
}

struct Fixture {
  Fixture() {
    AwaitTrue([&] { return lease.id() != 0; });
  }

  int64_t Put(const std::string& key, const std::string& value, int64_t with_lease = 0) {
    etcdserverpb::TxnRequest request;
    PutOnSuccess(key, value, with_lease, &request);
    const auto response = client.Txn(request, {});
    REQUIRE(response.ok());
    return response->header().revision();
  }
  void Delete(const std::string& key) {
    etcdserverpb::TxnRequest request;
    request.add_success()->mutable_request_delete_range()->set_key(key);
    REQUIRE(client.Txn(request, {}).ok());
  }
  std::optional<std::string> Read(const std::string& key) {
    etcdserverpb::RangeRequest request;
    request.set_key(key);
    const auto response = client.Range(request, {});
    REQUIRE(response.ok());
    if (response->kvs().empty()) return std::nullopt;
    return response->kvs(0).value();
  }
  View ReadView() {
    View view;
    REQUIRE(view.ParseFromString(Read(keys.view()).value_or("")));
    return view;
  }
  void Announce(const ProcessState& state) { Put(keys.Process(state), state.SerializeAsString()); }
  CoordinatorTerm::Options TermOptions(int64_t created) {
    return {.etcd = threads.get(),
            .wake = [] {},
            .lease = &lease,
            .keys = keys,
            .created = created,
            .settings = OneShard(),
            .on_event = [](const RecoveryEvent&) {}};
  }

  EtcdServer server;
  EtcdClient client{server.patient()};
  const RealClock clock;
  const EtcdKeys keys{"test"};
  const std::shared_ptr<EtcdRuntime> threads =
      std::make_shared<EtcdThreads>(EtcdClient::Options{.endpoints = {server.endpoint()}}, &clock);
  EtcdLease lease{{.etcd = threads.get(), .ttl = absl::Seconds(5)}};
};

// A term by itself.
class RunningTerm final : private EtcdMachine {
 public:
  explicit RunningTerm(CoordinatorTerm::Options options) : runner_(options.etcd->MakeRunner(this)) {
    options.wake = [this] { runner_->Wake(); };
    term_.emplace(options);
    runner_->Start();
  }
  ~RunningTerm() override { runner_->Stop(); }
  absl::Status Join() {
    AwaitTrue([&] { return is_over_.load(); });
    runner_->Stop();
    return over_;
  }

 private:
  Step Next(absl::Time now) override {
    if (is_over_) return absl::InfiniteFuture();
    const absl::StatusOr<Step> step = term_->Next(now);
    if (step.ok()) return *step;
    End(step.status());
    return absl::InfiniteFuture();
  }
  void Answered(const EtcdAnswer& answer, absl::Time now) override {
    const absl::Status taken = term_->Answered(answer, now);
    if (!taken.ok()) End(taken);
  }
  void End(const absl::Status& over) {
    over_ = over;
    is_over_ = true;
  }

  absl::Status over_;
  std::atomic<bool> is_over_{false};
  const std::unique_ptr<EtcdRunner> runner_;
  std::optional<CoordinatorTerm> term_;
};

}  // namespace

TEST_CASE("a coordinator that is deposed changes nothing") {
  REQUIRE_ETCD();
  Fixture etcd;
  const int64_t created = etcd.Put(etcd.keys.coordinator(), "first", etcd.lease.id());
  RunningTerm term(etcd.TermOptions(created));
  SECTION("a view") {
    etcd.Delete(etcd.keys.coordinator());
    etcd.Put(etcd.keys.coordinator(), "second");
    etcd.Announce(Ps(7));
    CHECK(term.Join() == absl::AbortedError("another coordinator has taken over"));
    CHECK_FALSE(etcd.Read(etcd.keys.view()).has_value());
  }
  SECTION("a refusal") {
    etcd.Delete(etcd.keys.coordinator());
    ProcessState other = Ps(7);
    other.set_config_fingerprint(43);
    etcd.Announce(other);
    CHECK(term.Join() == absl::AbortedError("the coordinator's key has been removed from etcd"));
    CHECK_FALSE(etcd.Read(etcd.keys.Refused(other)).has_value());
  }
  SECTION("the end of the run") {
    etcd.Announce(Ps(7));
    AwaitTrue([&] { return etcd.Read(etcd.keys.view()).has_value(); });
    etcd.Delete(etcd.keys.coordinator());
    etcd.Delete(etcd.keys.Process(Ps(7)));
    CHECK(absl::IsAborted(term.Join()));
    CHECK_FALSE(etcd.Read(etcd.keys.end()).has_value());
  }
}

TEST_CASE("a term goes on taking the folder of checkpoints until that is another run's") {
  REQUIRE_ETCD();
  struct Checkpoints final : CoordinatorCheckpoints {
    absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Begin(uint64_t, bool) override {
      return std::nullopt;
    }
    absl::Status Hold() override {
      return ++holds < 3 ? absl::OkStatus() : absl::FailedPreconditionError("taken over");
    }
    absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Newest(bool) override {
      return std::nullopt;
    }
    int holds = 0;
  } checkpoints;
  Fixture etcd;
  CoordinatorTerm::Options options =
      etcd.TermOptions(etcd.Put(etcd.keys.coordinator(), "first", etcd.lease.id()));
  options.checkpoints = &checkpoints;
  CHECK(RunningTerm(options).Join().message() == "taken over");
}

TEST_CASE("a coordinator overwrites no view that it does not know") {
  REQUIRE_ETCD();
  Fixture etcd;
  const int64_t created = etcd.Put(etcd.keys.coordinator(), "first", etcd.lease.id());
  RunningTerm term(etcd.TermOptions(created));
  etcd.Announce(Ps(7));
  AwaitTrue([&] { return etcd.Read(etcd.keys.view()).has_value(); });
  View other = etcd.ReadView();
  other.set_number(100);
  etcd.Put(etcd.keys.view(), other.SerializeAsString());
  ProcessState worker;
  worker.set_worker(0);
  worker.set_incarnation(8);
  worker.set_config_fingerprint(42);
  etcd.Announce(worker);
  CHECK_FALSE(term.Join().ok());
  CHECK(etcd.ReadView().number() == 100);
}

TEST_CASE("a coordinator goes on from the last view, and finds out who is gone meanwhile") {
  REQUIRE_ETCD();
  Fixture etcd;
  etcd.Announce(Ps(7));
  uint64_t number = 0;
  uint64_t run = 0;
  const auto candidate = [&] {
    return std::make_unique<EtcdCoordinator>(EtcdCoordinator::Options{
        .etcd = etcd.threads,
        .run = "test",
        .ttl = absl::Seconds(6),
        .name = "ps 0",
        .settings = OneShard(),
    });
  };
  {
    const auto coordinator = candidate();
    AwaitTrue([&] { return etcd.Read(etcd.keys.view()).has_value(); });
    CHECK(coordinator->IsElected());
    CHECK(etcd.Read(etcd.keys.coordinator()) == "ps 0");
    number = etcd.ReadView().number();
    run = etcd.ReadView().run();
    CHECK(run == OneShard().run);
  }
  // A coordinator that ends gives its place to another one at once.
  CHECK_FALSE(etcd.Read(etcd.keys.coordinator()).has_value());
  SECTION("nobody is gone") {
    const auto coordinator = candidate();
    ProcessState worker;
    worker.set_worker(0);
    worker.set_incarnation(8);
    worker.set_config_fingerprint(42);
    etcd.Announce(worker);
    AwaitTrue([&] { return etcd.ReadView().number() > number; });
    CHECK(etcd.ReadView().run() == run);
    CHECK(etcd.ReadView().worker(0).incarnation() == 8);
    CHECK(etcd.ReadView().slot(0).primary().incarnation() == 7);
  }
  SECTION("the shard is gone, whose state nobody else has") {
    etcd.Delete(etcd.keys.Process(Ps(7)));
    const auto coordinator = candidate();
    AwaitTrue([&] { return etcd.Read(etcd.keys.end()).has_value(); });
    Verdict verdict;
    REQUIRE(verdict.ParseFromString(*etcd.Read(etcd.keys.end())));
    CHECK(verdict.code() != 0);
    CHECK_THAT(verdict.reason(), Catch::Contains("ps 0 has lost its place in etcd"));
  }
  SECTION("another start of the shard is there") {
    etcd.Announce(Ps(9));
    const auto coordinator = candidate();
    AwaitTrue([&] { return etcd.Read(etcd.keys.end()).has_value(); });
  }
}

TEST_CASE("one of several candidates is elected") {
  REQUIRE_ETCD();
  Fixture etcd;
  std::vector<std::unique_ptr<EtcdCoordinator>> coordinators;
  for (int i = 0; i < 4; ++i) {
    coordinators.push_back(std::make_unique<EtcdCoordinator>(EtcdCoordinator::Options{
        .etcd = etcd.threads,
        .run = "test",
        .ttl = absl::Seconds(2),
        .name = absl::StrCat("ps ", i),
        .settings = OneShard(),
    }));
  }
  while (!coordinators.empty()) {
    std::vector<size_t> elected;
    AwaitTrue([&] {
      elected.clear();
      for (size_t i = 0; i < coordinators.size(); ++i) {
        if (coordinators[i]->IsElected()) elected.push_back(i);
      }
      return !elected.empty();
    });
    CHECK(elected.size() == 1);
    coordinators.erase(coordinators.begin() + static_cast<int>(elected[0]));
  }
}

}  // namespace evenshard
