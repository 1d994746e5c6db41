#include "server/recovery/slot_host.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/algorithm/container.h"
#include "common/wire/chunk_codec.h"
#include "tests/server/recovery/slot_fixture.h"

namespace evenshard {
namespace {

const ProcessId kNobody;

}  // namespace

class HostFixture : public SlotFixture {
 public:
  // Slot i: primary on process i, copy on the next one.
  void Begin() {
    Roles(0, Process(0, 10), Process(1, 11), true);
    Roles(1, Process(1, 11), Process(0, 10), true);
    Publish();
  }
};

TEST_CASE_METHOD(HostFixture,
                 "primary and copy have the same bits, and replies wait for the copy") {
  const std::string optimizer =
      GENERATE("SGD", "MOMENTUM", "NESTEROV", "ADAM", "ADAGRAD", "ADAMW", "RMSPROP",
               "RMSPROP_MOMENTUM", "ADAM_AMSGRAD", "ADAMW_AMSGRAD", "LION");
  const std::string encoding = GENERATE("FLOAT32", "BFLOAT16");
  const std::string update = GENERATE("update.policy=SYNC", "update.policy=ASYNC");
  CAPTURE(optimizer, encoding, update);
  Start({"optimizer.kind=" + optimizer, "exchange.gradient_encoding=" + encoding, update});
  Begin();
  const SlotState before = PrimaryState(0);
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    const size_t replies = Replies();
    Train(0, iteration);
    CHECK(Replies() == replies);
    net.Run();
    CHECK(Replies() == replies + 2 * Chunks(0));
  }
  CHECK_FALSE(PrimaryState(0) == before);
  CHECK(CopyState(1, 0) == PrimaryState(0));
}

TEST_CASE_METHOD(HostFixture, "a replica has the norms by which its primary limits gradients") {
  const std::string update = GENERATE("policy: SYNC deterministic: true", "policy: ASYNC");
  const bool is_filled = GENERATE(false, true);
  CAPTURE(update, is_filled);
  Start({"update={" + update + " max_norm: 1}"});
  Roles(0, Process(0, 10), is_filled ? Process(1, 11) : kNobody, is_filled);
  Roles(1, Process(1, 11), Process(0, 10), true);
  Publish();
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    Train(0, iteration);
    net.Run();
  }
  CHECK(Primary(0)->Stats().limited_pushes() > 0);
  if (!is_filled) {
    Roles(0, Process(0, 10), Process(1, 11), false);
    Publish();
    net.Run();
  }
  const SlotState primary = PrimaryState(0);
  for (const ChunkClock& clock : primary.clocks) REQUIRE(clock.norms.size() == 2);
  CHECK(primary.clocks[0].norms[0] > 0);
  CHECK(CopyState(1, 0) == primary);
}

TEST_CASE_METHOD(HostFixture, "a replica corrects stale gradients as its primary did") {
  const std::string correction =
      GENERATE("DELAY_COMPENSATION", "ADAPTIVE_DELAY_COMPENSATION", "GAP_AWARE");
  const bool is_filled = GENERATE(false, true);
  CAPTURE(correction, is_filled);
  Start({"update={policy: ASYNC asynchrony { correction: " + correction + " }}",
         "optimizer={kind: MOMENTUM learning_rate: 0.125}"});
  Roles(0, Process(0, 10), Process(1, 11), is_filled);
  Roles(1, Process(1, 11), Process(0, 10), true);
  Publish();
  for (const int rank : {0, 1}) Send(0, rank);
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    Train(0, iteration);
    net.Run();
    Send(0, static_cast<int>(iteration % 2));
  }
  const SlotState before = PrimaryState(0);
  CHECK(before.sent_versions[0] != std::vector<uint64_t>(2, SentParameters::kNoVersion));
  Kill(0);
  Roles(0, Process(1, 11), kNobody, false);
  Publish();
  CHECK(PrimaryState(0) == before);
  // It knows what worker 1 was sent before the last update, and not that worker 0 was sent that.
  const auto corrects = [&](int rank) {
    StoredChunk& chunk = Primary(0)->store().chunks()[0];
    absl::ReaderMutexLock lock(&chunk.mutex);
    return chunk.sent().Find(rank, held[{rank, chunk.info().id}]) != nullptr;
  };
  CHECK_FALSE(corrects(0));
  CHECK(corrects(1));
  Train(0, 3);
  CHECK(PrimaryState(0).clocks[0].version == 8);
}

class CountedNorms final : public AgreementTransport {
 public:
  void Report(const ProcessId&, const AgreementReport& report, AgreementDecider::Answer) override {
    ++reports;
  }
  int reports = 0;
};

// It would be refused, and fail the run in the end.
TEST_CASE_METHOD(HostFixture, "a slot that has nothing to clip reports no norm") {
  absl::StatusOr<PlannedConfig> given = PlannedConfig::Parse(
      R"pb(
        model {
          from_workers {
            tensor { name: "fc.weight" shape: 4 }
            tensor { name: "norm.running_mean" shape: 4 role: RUNNING_STATISTIC }
          }
        }
        partition { scheme: LAYER_BASED }
        shard { address: "127.0.0.1:7001" }
        shard { address: "127.0.0.1:7002" }
        workers: 2
        update { policy: SYNC clip_global_norm: 1 }
        recovery { replicas: 1 }
      )pb",
      "test.textproto");
  REQUIRE(given.ok());
  CountedNorms counted;
  norms = &counted;
  StartWith(*std::move(given));
  REQUIRE(config->plan().chunks_of_shard(1) == std::vector<uint32_t>{1});  // the statistic
  Begin();
  CHECK(counted.reports == 0);
}

TEST_CASE_METHOD(HostFixture, "a copy takes over with what was confirmed, and history goes on") {
  Start({"optimizer.kind=ADAM"});
  Begin();
  const uint64_t history = Primary(0)->history();
  Train(0, 0);
  net.Run();
  const SlotState confirmed = PrimaryState(0);
  Train(0, 1);  // the copy does not get it
  Kill(0);
  Roles(0, Process(1, 11), kNobody, false);
  Roles(1, Process(1, 11), kNobody, false);
  Publish();
  CHECK(PrimaryState(0) == confirmed);
  CHECK(Primary(0)->history() == history);
  CHECK(hosts[1]->Copy(0) == nullptr);
  const size_t replies = Replies();
  Train(0, 1);                                  // pushed again
  CHECK(Replies() == replies + 2 * Chunks(0));  // no copy, so nothing to wait for
}

TEST_CASE_METHOD(HostFixture, "a process that comes back is filled while training goes on") {
  Start({"optimizer.kind=ADAM", "update.deterministic=true"});
  Begin();
  Train(0, 0);
  net.Run();
  Kill(0);
  Roles(0, Process(1, 11), kNobody, false);
  Publish();
  StartHost(0, 20);
  Roles(0, Process(1, 11), Process(0, 20), false);
  Publish();
  CHECK_FALSE(absl::c_linear_search(hosts[1]->State().filled(), 0u));
  REQUIRE(Chunks(0) > 4);  // more than are on the way at a time
  bool was_partly_filled = false;
  for (uint64_t iteration = 1; iteration < 4; ++iteration) {
    const size_t replies = Replies() + 2 * Chunks(0);
    Train(0, iteration);
    while (Replies() < replies) {
      REQUIRE(net.Step());
      const uint64_t unfilled = hosts[1]->Stats(0)->recovery().unfilled_chunks();
      was_partly_filled |= unfilled > 0 && unfilled < Chunks(0);
    }
  }
  CHECK(was_partly_filled);
  net.Run();
  CHECK(absl::c_linear_search(hosts[1]->State().filled(), 0u));
  CHECK(hosts[1]->State().view() == 3);
  Roles(0, Process(1, 11), Process(0, 20), true);
  Publish();
  Train(0, 4);
  net.Run();
  CHECK(hosts[1]->Stats(0)->recovery().unfilled_chunks() == 0);
  CHECK(CopyState(0, 0) == PrimaryState(0));
}

TEST_CASE_METHOD(HostFixture, "a slot goes back to its own process by handing over") {
  Start({"optimizer.kind=MOMENTUM"});
  Roles(0, Process(1, 11), Process(0, 10), true);
  Roles(1, Process(1, 11), kNobody, false);
  Publish();
  Train(0, 0);
  view.mutable_slot(0)->set_handing_over(true);
  Publish();
  CHECK(hosts[1]->State().handed_over().empty());  // the copy lacks the last changes
  const size_t replies = Replies();
  net.Run();
  CHECK(absl::c_linear_search(hosts[1]->State().handed_over(), 0u));
  CHECK(Replies() == replies + 2 * Chunks(0));
  Train(0, 1);  // dropped
  const SlotState state = PrimaryState(0);
  const std::shared_ptr<Shard> old = Primary(0);
  Roles(0, Process(0, 10), Process(1, 11), true);
  Publish();
  CHECK(hosts[1]->Primary(0) == nullptr);
  CHECK(absl::IsUnavailable(hosts[1]->Stats(0).status()));
  CHECK(absl::IsUnavailable(old->failure()));
  CHECK(PrimaryState(0) == state);
  Train(0, 1);
  net.Run();
  CHECK(CopyState(1, 0) == PrimaryState(0));
}

TEST_CASE_METHOD(HostFixture, "who was primary and is not complete is filled from the beginning") {
  // Its last changes may be ones that nobody has confirmed.
  Start();
  Begin();
  Train(0, 0);  // not replicated
  hosts[1]->Adopt([this] {
    Roles(0, Process(1, 11), kNobody, false);
    view.set_number(2);
    return view;
  }());
  Train(0, 0);
  const std::shared_ptr<Shard> shard = hosts[1]->Primary(0);
  StoredChunk& chunk = shard->store().chunks()[0];
  {
    absl::MutexLock lock(&chunk.mutex);
    chunk.mutable_array(0)[0] = 4711;  // as if other pushes had counted
  }
  Roles(0, Process(1, 11), Process(0, 10), false);
  Publish();
  net.Run();
  CHECK(StateOf(*hosts[0]->Copy(0)->Retire()) == StateOf(shard->store()));
}

TEST_CASE_METHOD(HostFixture, "a copy that begins anew in a view not seen is filled again") {
  Start();
  Begin();
  Train(0, 0);
  net.Run();
  const View seen = view;
  Roles(0, Process(0, 10), kNobody, false);
  Publish({1});  // process 0 does not see it
  CHECK(hosts[1]->Copy(0) == nullptr);
  Roles(0, Process(0, 10), Process(1, 11), false);
  Publish();
  CHECK_FALSE(absl::c_linear_search(hosts[0]->State().filled(), 0u));
  net.Run();
  CHECK(absl::c_linear_search(hosts[0]->State().filled(), 0u));
  CHECK(CopyState(1, 0) == PrimaryState(0));
}

TEST_CASE_METHOD(HostFixture, "a new generation begins from the beginning") {
  Start();
  Begin();
  const SlotState initial = PrimaryState(1);
  const uint64_t history = Primary(1)->history();
  Train(1, 0);
  net.Run();
  const std::shared_ptr<Shard> old = Primary(1);
  view.set_generation(2);
  Publish();
  CHECK(Primary(1) != old);
  CHECK(absl::IsUnavailable(old->failure()));
  CHECK(PrimaryState(1) == initial);
  CHECK(Primary(1)->history() != history);
  Train(1, 0);
  net.Run();
  CHECK(CopyState(0, 1) == PrimaryState(1));
}

TEST_CASE_METHOD(HostFixture, "a view that gives a role without a state fails the run") {
  Start();
  Roles(0, Process(0, 10), kNobody, false);
  Roles(1, Process(1, 11), kNobody, false);
  Publish();
  CHECK(hosts[0]->State().failure().empty());
  Roles(1, Process(0, 10), kNobody, false);
  Publish();
  CHECK_THAT(hosts[0]->State().failure(), Catch::Contains("view 2 makes ps 0 primary of slot 1"));
}

TEST_CASE_METHOD(HostFixture, "a view of another plan is not followed") {
  Start();
  view.mutable_slot()->RemoveLast();
  view.mutable_worker()->RemoveLast();
  Publish();
  CHECK_THAT(hosts[0]->State().failure(),
             Catch::Contains("1 slots and 1 workers, allowed: 2 and 2, as in the config"));
  CHECK(hosts[0]->Primary(0) == nullptr);
}

TEST_CASE_METHOD(HostFixture, "a shard's failure can be sent though its text is not UTF-8") {
  Start();
  Begin();
  Primary(0)->Fail(absl::DataLossError("no file B\xe4ren"));  // Latin-1
  const ProcessState state = hosts[0]->State();
  CHECK_THAT(state.failure(), Catch::Contains("no file B\\xe4ren"));
  CHECK(ProcessState().ParseFromString(state.SerializeAsString()));
  const ShardStats stats = Primary(0)->Stats();
  CHECK_THAT(stats.failure(), Catch::Contains("no file B\\xe4ren"));
  CHECK(ShardStats().ParseFromString(stats.SerializeAsString()));
}

TEST_CASE_METHOD(HostFixture, "the failure of a shard is the process's, and an old view nothing") {
  Start();
  Begin();
  const View newest = view;
  View old = view;
  old.set_generation(9);
  hosts[0]->Adopt(old);  // of the same number
  CHECK(hosts[0]->view().generation() == 1);
  const std::shared_ptr<Shard> shard = Primary(0);
  for (int rank = 0; rank < 2; ++rank) SessionOf(*shard, rank);
  const Chunk& chunk = shard->store().chunks()[0].info();
  const std::vector<float> bad(chunk.size, std::numeric_limits<float>::quiet_NaN());
  Segments data = {{reinterpret_cast<const char*>(bad.data()), bad.size() * sizeof(float)}};
  CHECK_FALSE(shard
                  ->Push(*SessionOf(*shard, 0),
                         Gradient{{.worker = 0,
                                   .incarnation = 100,
                                   .iteration = 0,
                                   .chunk = chunk.id,
                                   .encoding = FLOAT32,
                                   .view = 1},
                                  data,
                                  nullptr},
                         sinks[0])
                  .ok());
  CHECK_THAT(hosts[0]->State().failure(), Catch::Contains("not finite"));
  CHECK(hosts[1]->State().failure().empty());
}

TEST_CASE_METHOD(HostFixture, "a change of the worker set tells where the slot stands") {
  Start();
  Begin();
  const std::shared_ptr<Shard> shard = Primary(0);
  Train(0, 0);
  net.Run();
  StoredChunk& first = shard->store().chunks()[0];
  REQUIRE(Push(*shard, 1, 1, first.info()).ok());
  view.mutable_worker(1)->set_state(WorkerView::LEAVING);
  view.set_worker_set_changes(true);
  Publish();
  const ProcessState state = hosts[0]->State();
  REQUIRE(state.position_size() == 1);
  CHECK(state.position(0).slot() == 0);
  CHECK(state.position(0).iteration() == 1);
  // That worker 1 has pushed for iteration 1 would be lost with this process.
  CHECK(state.position(0).least_iteration() == 1);
  // Its session has ended, and it cannot come back.
  CHECK(absl::IsUnavailable(shard->OpenStream(1, 101).status()));
}

TEST_CASE_METHOD(HostFixture, "a worker joins in the shard's own view, as who the view says") {
  Start();
  Begin();
  const std::shared_ptr<Shard> shard = Primary(0);
  JoinRequest request;
  request.set_worker(0);
  request.set_incarnation(100);
  request.set_config_fingerprint(config->fingerprint());
  request.set_plan_fingerprint(config->plan().fingerprint());
  request.set_plan_version(kPlanVersion);
  request.set_protocol_version(kProtocolVersion);
  request.set_view(2);
  CHECK(absl::IsUnavailable(shard->Join(request, "test").status()));
  request.set_view(1);
  CHECK(shard->Join(request, "test").ok());
  request.set_incarnation(999);
  CHECK(absl::IsFailedPrecondition(shard->Join(request, "test").status()));
  // The view gives the rank to another start, which need not wait for the old one's streams.
  REQUIRE(shard->OpenStream(0, 100).ok());
  view.mutable_worker(0)->set_incarnation(999);
  Publish();
  request.set_view(2);
  CHECK(shard->Join(request, "test").ok());
  CHECK(absl::IsUnavailable(shard->OpenStream(0, 100).status()));
}

TEST_CASE_METHOD(HostFixture, "who is primary of a slot is as the host's own view says") {
  Start();
  Begin();
  CHECK(*hosts[0]->PrimaryProcess(1, 1) == 1);
  CHECK(*hosts[0]->PrimaryProcess(1, 2) == -1);  // there is no such slot
  view.mutable_slot(0)->clear_primary();
  Roles(1, Process(0, 10), kNobody, false);
  Publish();
  CHECK(*hosts[0]->PrimaryProcess(2, 0) == -1);
  CHECK(*hosts[0]->PrimaryProcess(2, 1) == 0);
  CHECK(absl::IsUnavailable(hosts[0]->PrimaryProcess(1, 1).status()));
  CHECK(absl::IsUnavailable(hosts[0]->PrimaryProcess(3, 1).status()));
}

TEST_CASE_METHOD(HostFixture, "changes that a lost copy has not confirmed wait for nobody") {
  Start();
  Begin();
  Train(0, 0);
  CHECK(Replies() == 0);
  CHECK(hosts[0]->Stats(0)->recovery().replication_lag() == Chunks(0));
  Roles(0, Process(0, 10), kNobody, false);
  Publish({0});
  CHECK(Replies() == 2 * Chunks(0));
  CHECK(hosts[0]->Stats(0)->recovery().replication_lag() == 0);
}

TEST_CASE_METHOD(HostFixture,
                 "a stream that breaks is opened again, and everything is sent again") {
  Start({GENERATE("update.policy=SYNC", "update.policy=ASYNC")});
  Begin();
  Train(0, 0);
  REQUIRE(Chunks(0) > 2);
  net.Step();
  net.Break();
  hosts[0]->Tick();  // too early
  CHECK_FALSE(net.Step());
  clock.Advance(absl::Seconds(1));
  hosts[0]->Tick();
  net.Run();
  CHECK(Replies() == 2 * Chunks(0));
  CHECK(CopyState(1, 0) == PrimaryState(0));
}

}  // namespace evenshard
