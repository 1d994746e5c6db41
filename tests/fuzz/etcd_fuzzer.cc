// libFuzzer target: what etcd answers to a process, and what its watch brings: any keys, with
// views, states and verdicts that are wrong in a few fields or are no messages at all. The process
// follows views of growing numbers, and has no roles once its link has ended.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/control/etcd/etcd_coordinator.h"
#include "common/control/etcd/etcd_link.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

constexpr char kRun[] = "run";

// An etcd that answers what the input says.
class FuzzedEtcd final : public EtcdRuntime {
 public:
  explicit FuzzedEtcd(FuzzedDataProvider* input) : input_(*input) {}

  // Runs each machine once.
  void Step() {
    constexpr int kMostMilliseconds = 3000;
    clock_.Advance(absl::Milliseconds(input_.ConsumeIntegralInRange(0, kMostMilliseconds)));
    for (EtcdMachine* const machine : std::vector<EtcdMachine*>(machines_)) {
      if (std::find(machines_.begin(), machines_.end(), machine) == machines_.end()) continue;
      const EtcdMachine::Step step = machine->Next(clock_.Now());
      if (std::holds_alternative<absl::Time>(step)) continue;
      machine->Answered(Answer(std::get<EtcdRequest>(step)), clock_.Now());
    }
  }

  std::unique_ptr<EtcdRunner> MakeRunner(EtcdMachine* machine) override {
    return std::make_unique<Runner>(this, machine);
  }
  std::unique_ptr<EtcdWatchStream> Watch(const etcdserverpb::WatchCreateRequest& request,
                                         std::function<void()>) override {
    return std::make_unique<Stream>(this, request);
  }
  absl::Status Revoke(int64_t) override { return absl::OkStatus(); }
  absl::Duration timeout() const override { return absl::Milliseconds(500); }
  const Clock& clock() const override { return clock_; }

 private:
  class Runner final : public EtcdRunner {
   public:
    Runner(FuzzedEtcd* etcd, EtcdMachine* machine) : etcd_(*etcd), machine_(machine) {}
    ~Runner() override { Stop(); }
    void Start() override { etcd_.machines_.push_back(machine_); }
    void Stop() override { std::erase(etcd_.machines_, machine_); }
    void Wake() override {}

   private:
    FuzzedEtcd& etcd_;
    EtcdMachine* const machine_;
  };

  class Stream final : public EtcdWatchStream {
   public:
    Stream(FuzzedEtcd* etcd, const etcdserverpb::WatchCreateRequest& request)
        : etcd_(*etcd), revision_(request.start_revision()) {}
    absl::StatusOr<std::optional<etcdserverpb::WatchResponse>> Next() override {
      FuzzedDataProvider& input = etcd_.input_;
      switch (input.ConsumeIntegralInRange(0, 7)) {
        case 0:
          return absl::UnavailableError("the stream has ended");
        case 1:
        case 2:
        case 3: {
          etcdserverpb::WatchResponse response;
          response.mutable_header()->set_revision(revision_);
          mvccpb::Event& event = *response.add_events();
          *event.mutable_kv() = etcd_.AnyKey();
          event.mutable_kv()->set_mod_revision(revision_++);
          if (input.ConsumeBool()) Vary(input, 2, &response);
          return response;
        }
        default:
          return std::nullopt;
      }
    }
    void RequestProgress() override {}
    absl::Status GiveUp(absl::string_view why) override { return absl::UnavailableError(why); }

   private:
    FuzzedEtcd& etcd_;
    uint64_t revision_;
  };

  template <typename Message>
  std::string Serialized(Message message) {
    Vary(input_, 4, &message);
    return message.SerializeAsString();
  }

  mvccpb::KeyValue AnyKey() {
    const EtcdKeys keys(kRun);
    ProcessState process;
    process.set_ps(input_.ConsumeIntegralInRange(0, 2));
    process.set_incarnation(1);
    mvccpb::KeyValue key;
    key.set_create_revision(1);
    switch (input_.ConsumeIntegralInRange(0, 5)) {
      case 0: {
        key.set_key(keys.view());
        View view;
        view.set_number(++views_);
        view.add_worker_set()->add_rank(0);
        for (uint32_t i = 0; i < 2; ++i) {
          view.add_worker()->set_incarnation(1);
          ProcessId& primary = *view.add_slot()->mutable_primary();
          primary.set_process(i);
          primary.set_incarnation(1);
        }
        key.set_value(Serialized(view));
        break;
      }
      case 1:
        key.set_key(keys.end());
        key.set_value(Serialized(Verdict()));
        break;
      case 2: {
        key.set_key(keys.Refused(process));
        Verdict verdict;
        verdict.set_incarnation(1);
        key.set_value(Serialized(verdict));
        break;
      }
      case 3:
        key.set_key(keys.Process(process));
        key.set_value(Serialized(process));
        key.set_lease(input_.ConsumeIntegralInRange(0, 4));
        break;
      case 4:
        key.set_key(keys.coordinator());
        break;
      default:
        key.set_key(keys.view());
        key.set_value(input_.ConsumeRandomLengthString());
    }
    if (input_.ConsumeBool()) Vary(input_, 2, &key);
    return key;
  }

  EtcdAnswer Answer(const EtcdRequest& request) {
    switch (input_.ConsumeIntegralInRange(0, 15)) {
      case 0:
        return absl::UnavailableError("etcd is away");
      case 1:
        return absl::NotFoundError("the lease has ended");
      default:
        break;
    }
    if (std::holds_alternative<EtcdLeaseRequest>(request)) {
      return input_.ConsumeIntegralInRange<int64_t>(0, 4);
    }
    if (std::holds_alternative<etcdserverpb::RangeRequest>(request)) {
      etcdserverpb::RangeResponse response;
      response.mutable_header()->set_revision(1);
      for (int i = input_.ConsumeIntegralInRange(0, 3); i > 0; --i) *response.add_kvs() = AnyKey();
      return response;
    }
    etcdserverpb::TxnResponse response;
    response.mutable_header()->set_revision(1);
    response.set_succeeded(input_.ConsumeBool());
    for (int i = input_.ConsumeIntegralInRange(0, 3); i > 0; --i) {
      auto& range = *response.add_responses()->mutable_response_range();
      if (input_.ConsumeBool()) *range.add_kvs() = AnyKey();
    }
    return response;
  }

  FuzzedDataProvider& input_;
  FakeClock clock_;
  uint64_t views_ = 0;
  std::vector<EtcdMachine*> machines_;
};

void Check(FuzzedDataProvider& input) {
  constexpr int kMostSteps = 60;
  const auto etcd = std::make_shared<FuzzedEtcd>(&input);
  EtcdCoordinator::Options options;
  options.etcd = etcd;
  options.run = kRun;
  options.ttl = absl::Seconds(5);
  options.name = "ps 0";
  options.settings.slots = 2;
  options.settings.workers = 2;
  const EtcdCoordinator coordinator(options);
  EtcdLink link({.etcd = etcd,
                 .run = kRun,
                 .ttl = absl::Seconds(5),
                 .startup = absl::Seconds(30),
                 .patience = absl::Seconds(60)});
  uint64_t number = 0;
  bool has_ended = false;
  link.Start({.on_view =
                  [&](const View& view) {
                    Require(view.number() > number && !has_ended, "views of growing numbers");
                    number = view.number();
                  },
              .on_end =
                  [&](const absl::Status& reason) {
                    Require(!reason.ok() && !has_ended, "it ends once, for a reason");
                    has_ended = true;
                  }});
  ProcessState state;
  state.set_ps(0);
  state.set_incarnation(1);
  link.Announce(state);
  for (int step = 0; step < kMostSteps && input.remaining_bytes() > 0; ++step) {
    etcd->Step();
    Require(!has_ended || !link.HoldsRoles(), "no roles after the end");
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider input(bytes, size);
  evenshard::Check(input);
  return 0;
}
