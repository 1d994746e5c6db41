#include "server/recovery/replicator.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/base/error_kind.h"
#include "tests/server/recovery/slot_fixture.h"

namespace evenshard {
namespace {

// A transport that records what is sent, and lets the test play the copy.
class FakeTransport final : public ReplicaTransport {
 public:
  struct Stream final : ReplicaStream {
    explicit Stream(FakeTransport* transport, Receiver* receiver)
        : transport(transport), receiver(receiver) {}
    ~Stream() override {
      if (transport->stream == this) transport->stream = nullptr;
    }
    void Send(ReplicaMessage message) override { sent.push_back(std::move(message)); }
    FakeTransport* const transport;
    Receiver* const receiver;
    std::vector<ReplicaMessage> sent;
    size_t confirmed = 0;
  };

  std::unique_ptr<ReplicaStream> Open(int slot, int lane, uint64_t number, const ProcessId& primary,
                                      const ProcessId& copy,
                                      ReplicaStream::Receiver* receiver) override {
    ++opened;
    view = number;
    auto made = std::make_unique<Stream>(this, receiver);
    stream = made.get();
    return made;
  }
  void Disconnect(int slot) override { ++disconnected; }
  void Confirm(int count = 1) {
    for (int i = 0; i < count; ++i) {
      REQUIRE(stream->confirmed < stream->sent.size());
      ++stream->confirmed;
      stream->receiver->Confirmed(ReplicaReceipt());
    }
  }
  void ConfirmAll() {
    while (stream->confirmed < stream->sent.size()) Confirm();
  }

  Stream* stream = nullptr;  // the newest, if it is still there
  int opened = 0;
  int disconnected = 0;
  uint64_t view = 0;
};

class ReplicatorFixture {
 public:
  explicit ReplicatorFixture() : config(SlotConfig()) {
    auto made = ParameterStore::Create(config, 0);
    REQUIRE(made.ok());
    store = *std::move(made);
    REQUIRE(store->chunks().size() > 5);
    replicator = std::make_unique<Replicator>(Replicator::Options{
        .slot = 0,
        .store = store,
        .transport = &net,
        .clock = &clock,
        .patience = absl::Seconds(10),
        .confirm = [this](int index, uint64_t change) { confirmed.emplace_back(index, change); },
        .on_progress = [this] { ++progress; },
        .on_failure = [this](const absl::Status& failure) { failures.push_back(failure); }});
  }
  void Adopt(uint64_t number, uint64_t copy, bool complete) {
    View view;
    view.set_number(number);
    SlotView* slot = view.add_slot();
    *slot->mutable_primary() = SlotFixture::Process(0, 10);
    if (copy != 0) *slot->mutable_replica() = SlotFixture::Process(1, copy);
    slot->set_replica_is_complete(complete);
    replicator->Adopt(view);
  }
  // Changes a chunk. Returns the change's number if its replies wait.
  std::optional<uint64_t> Change(int index) {
    StoredChunk& chunk = store->chunks()[index];
    absl::MutexLock lock(&chunk.mutex);
    ++chunk.mutable_clock().version;
    ++chunk.mutable_clock().iteration;
    const auto iteration = static_cast<int64_t>(chunk.clock().iteration) - 1;
    return replicator->Changed(index, chunk, {.rate = {.iteration = iteration}});
  }
  uint32_t Id(int index) { return store->chunks()[index].info().id; }
  // The chunks of the messages, those of states as negative numbers.
  std::vector<int> Sent() {
    std::vector<int> sent;
    for (const ReplicaMessage& message : net.stream->sent) {
      const int index = store->IndexOf(message.header.chunk());
      sent.push_back(message.header.is_state() ? -1 - index : index);
    }
    return sent;
  }

  using Confirmations = std::vector<std::pair<int, uint64_t>>;

  PlannedConfig config;
  FakeClock clock;
  FakeTransport net;
  std::shared_ptr<ParameterStore> store;
  Confirmations confirmed;
  int progress = 0;
  std::vector<absl::Status> failures;
  std::unique_ptr<Replicator> replicator;
};

}  // namespace

TEST_CASE_METHOD(ReplicatorFixture, "without a copy no reply waits") {
  CHECK(Change(0) == std::nullopt);
  Adopt(1, 0, false);
  CHECK(Change(0) == std::nullopt);
  CHECK(net.opened == 0);
  CHECK(replicator->is_idle());
  CHECK_FALSE(replicator->is_filled());
}

TEST_CASE_METHOD(ReplicatorFixture,
                 "changes go to the copy in order, and receipts release replies") {
  Adopt(1, 20, true);
  CHECK(replicator->is_filled());
  CHECK(Change(2) == 1);
  CHECK(Change(0) == 1);
  CHECK(Change(2) == 2);
  CHECK(Sent() == std::vector<int>{2, 0, 2});
  CHECK(net.stream->sent[2].header.iteration() == 2);
  CHECK(net.stream->sent[2].header.rate_iteration() == 1);
  CHECK(net.stream->sent[2].header.view() == 1);
  CHECK(replicator->unconfirmed() == 3);
  net.Confirm(2);
  CHECK(confirmed == Confirmations{{2, 1}, {0, 1}});
  CHECK(replicator->IsConfirmed(0));
  CHECK_FALSE(replicator->IsConfirmed(2));
  const int before = progress;
  net.Confirm();
  CHECK(progress == before + 1);
  CHECK(replicator->is_idle());
}

TEST_CASE_METHOD(ReplicatorFixture, "the copy learns in which iteration nobody had a gradient") {
  for (const bool complete : {true, false}) {  // by a change, and by the state
    {
      absl::MutexLock lock(&store->chunks()[0].mutex);
      store->chunks()[0].mutable_clock().all_absent = true;
    }
    Adopt(complete ? 1 : 2, complete ? 20 : 21, complete);
    if (complete) CHECK(Change(0) == 1);
    REQUIRE(net.stream->sent.front().header.chunk() == Id(0));
    CHECK(net.stream->sent.front().header.is_state() == !complete);
    CHECK(net.stream->sent.front().header.all_absent());
  }
}

TEST_CASE_METHOD(ReplicatorFixture, "the run fails if the replica says so, whatever the code") {
  Adopt(1, 20, true);
  net.stream->receiver->Ended(absl::DataLossError("of the network's"));
  CHECK(failures.empty());
  clock.Advance(absl::Seconds(1));
  replicator->Tick();
  net.stream->receiver->Ended(WithKind(ErrorDetail::RUN_FAILED, absl::UnavailableError("lacks")));
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].message() == "lacks");
}

TEST_CASE_METHOD(ReplicatorFixture,
                 "a broken stream is opened again after a pause, with everything") {
  Adopt(1, 20, true);
  for (const int index : {0, 1, 0}) Change(index);
  net.Confirm();
  net.stream->receiver->Ended(absl::UnavailableError("gone"));
  CHECK(Change(3) == 1);
  CHECK(net.stream->sent.size() == 3);
  replicator->Tick();
  CHECK(net.opened == 1);
  clock.Advance(absl::Seconds(1));
  replicator->Tick();
  CHECK(net.opened == 2);
  CHECK(Sent() == std::vector<int>{0, 1, 3});
  CHECK(net.stream->sent[0].header.iteration() == 2);
  CHECK(replicator->unconfirmed() == 3);
  net.ConfirmAll();
  CHECK(confirmed == Confirmations{{0, 1}, {0, 2}, {1, 1}, {3, 1}});
  clock.Advance(absl::Seconds(1));
  replicator->Tick();
  CHECK(net.opened == 2);
}

TEST_CASE_METHOD(ReplicatorFixture, "attempts in vain become rarer until something is confirmed") {
  Adopt(1, 20, true);
  Change(0);
  const auto ticks_until_next = [this] {  // of 50 ms
    net.stream->receiver->Ended(absl::UnavailableError("gone"));
    const int before = net.opened;
    int ticks = 0;
    for (; net.opened == before; ++ticks) {
      clock.Advance(absl::Milliseconds(50));
      replicator->Tick();
    }
    return ticks;
  };
  for (const int expected : {1, 2, 4, 8, 16, 16}) CHECK(ticks_until_next() == expected);
  net.Confirm();
  CHECK(ticks_until_next() == 1);
  CHECK(ticks_until_next() == 2);
  Adopt(2, 20, true);
  CHECK(ticks_until_next() == 1);
}

TEST_CASE_METHOD(ReplicatorFixture, "connections stay from view to view while the copy does") {
  Adopt(1, 20, true);
  net.stream->receiver->Ended(absl::UnavailableError("gone"));
  clock.Advance(absl::Seconds(1));
  replicator->Tick();
  Adopt(2, 20, true);
  Adopt(7, 20, false);
  CHECK(net.opened == 4);
  CHECK(net.disconnected == 0);
  Adopt(8, 21, false);
  CHECK(net.disconnected == 1);
  Adopt(9, 0, false);
  CHECK(net.disconnected == 2);
  Adopt(10, 22, false);
  replicator->Stop();
  replicator->Stop();
  CHECK(net.disconnected == 3);
}

TEST_CASE_METHOD(ReplicatorFixture,
                 "in a new view the same copy is sent what it has not confirmed") {
  Adopt(1, 20, true);
  Change(0);
  Change(1);
  net.Confirm();
  Adopt(5, 20, true);
  CHECK(net.view == 5);
  CHECK(Sent() == std::vector<int>{1});
  CHECK(net.stream->sent[0].header.view() == 5);
  CHECK(confirmed == Confirmations{{0, 1}});
  net.Confirm();
  CHECK(replicator->is_idle());
}

TEST_CASE_METHOD(ReplicatorFixture, "without its copy, nothing waits any more") {
  Adopt(1, 20, true);
  for (const int index : {0, 0, 4}) Change(index);
  Adopt(2, 0, false);
  CHECK(confirmed == Confirmations{{0, 2}, {4, 1}});
  CHECK(replicator->is_idle());
  CHECK(net.stream == nullptr);
  CHECK_FALSE(replicator->is_filled());
}

TEST_CASE_METHOD(ReplicatorFixture, "a new copy is filled a few chunks at a time") {
  const int chunks = static_cast<int>(store->chunks().size());
  Adopt(1, 20, false);
  CHECK(Sent() == std::vector<int>{-1, -2, -3, -4});
  CHECK(replicator->unfilled() == static_cast<uint64_t>(chunks));
  CHECK(Change(5) == std::nullopt);  // its state will be sent after this
  CHECK(Change(1) == 1);             // its state was sent before
  CHECK(Sent() == std::vector<int>{-1, -2, -3, -4, 1});
  CHECK_FALSE(replicator->is_idle());
  net.Confirm();
  CHECK(Sent() == std::vector<int>{-1, -2, -3, -4, 1, -5});
  CHECK(replicator->unfilled() == static_cast<uint64_t>(chunks - 1));
  net.ConfirmAll();
  CHECK(replicator->is_filled());
  CHECK(replicator->is_idle());
  CHECK(confirmed == Confirmations{{1, 1}});
  CHECK(net.stream->sent.size() == static_cast<size_t>(chunks + 1));
  for (const ReplicaMessage& message : net.stream->sent) {
    if (!message.header.is_state()) continue;
    const bool had_changed = message.header.chunk() == Id(5);
    CHECK(message.header.iteration() == (had_changed ? 1 : 0));
  }
}

TEST_CASE_METHOD(ReplicatorFixture,
                 "a state that was on the way is sent again, with what followed") {
  Adopt(1, 20, false);
  net.Confirm();  // chunk 0
  CHECK(Change(0) == 1);
  CHECK(Change(1) == 1);
  net.stream->receiver->Ended(absl::UnavailableError("gone"));
  clock.Advance(absl::Seconds(1));
  replicator->Tick();
  // Chunk 0 was filled, so its change waits on. That of chunk 1 waits for nobody, and is part of
  // the state that is sent now.
  CHECK(confirmed == Confirmations{{1, 1}});
  CHECK(Sent() == std::vector<int>{0, -2, -3, -4, -5});
  CHECK(net.stream->sent[1].header.iteration() == 1);
  net.ConfirmAll();
  CHECK(replicator->is_filled());
}

TEST_CASE_METHOD(ReplicatorFixture,
                 "filling goes on in the next view, and begins anew after a gap") {
  const size_t chunks = store->chunks().size();
  Adopt(1, 20, false);
  net.Confirm(2);
  Adopt(2, 20, false);
  CHECK(Sent() == std::vector<int>{-3, -4, -5, -6});
  net.ConfirmAll();
  CHECK(replicator->is_filled());
  Adopt(3, 20, false);  // for another reason, before the coordinator has heard of it
  CHECK(replicator->is_filled());
  CHECK(Sent().empty());
  Adopt(5, 20, false);  // in view 4 it may have been no copy
  CHECK_FALSE(replicator->is_filled());
  CHECK(replicator->unfilled() == chunks);
  net.ConfirmAll();
  CHECK(replicator->is_filled());
  Adopt(9, 20, true);
  CHECK(replicator->is_filled());
}

TEST_CASE_METHOD(ReplicatorFixture, "another start of the copy is another copy") {
  Adopt(1, 20, true);
  Change(0);
  Adopt(2, 21, false);
  CHECK(confirmed == Confirmations{{0, 1}});
  CHECK(Sent() == std::vector<int>{-1, -2, -3, -4});
}

TEST_CASE_METHOD(ReplicatorFixture, "after Stop nothing is sent") {
  Adopt(1, 20, true);
  Change(0);
  replicator->Stop();
  CHECK(net.stream == nullptr);
  CHECK(Change(0) == std::nullopt);
  clock.Advance(absl::Seconds(1));
  replicator->Tick();
  CHECK(net.opened == 1);
  CHECK(confirmed.empty());
}

TEST_CASE_METHOD(ReplicatorFixture, "a replica that should confirm and does not is unreachable") {
  Adopt(1, 20, true);
  clock.Advance(absl::Seconds(100));
  replicator->Tick();
  CHECK_FALSE(replicator->is_unreachable());  // there is nothing to confirm
  Change(0);
  Change(1);
  clock.Advance(absl::Seconds(9));
  net.Confirm();
  clock.Advance(absl::Seconds(9));
  replicator->Tick();
  CHECK_FALSE(replicator->is_unreachable());
  const int before = progress;
  clock.Advance(absl::Seconds(1));
  replicator->Tick();
  CHECK(replicator->is_unreachable());
  CHECK(progress == before + 1);
  SECTION("until it confirms something") {
    net.Confirm();
    CHECK_FALSE(replicator->is_unreachable());
    replicator->Tick();
    CHECK(progress == before + 3);  // one is for being idle
  }
  SECTION("also when the stream is opened again, and when the view changes") {
    net.stream->receiver->Ended(absl::UnavailableError("gone"));
    clock.Advance(absl::Milliseconds(50));
    replicator->Tick();
    CHECK(replicator->is_unreachable());
    Adopt(2, 20, true);
    CHECK(replicator->is_unreachable());
  }
  SECTION("until the view has none, and its changes are released") {
    Adopt(2, 0, false);
    CHECK_FALSE(replicator->is_unreachable());
    CHECK(confirmed == Confirmations{{0, 1}, {1, 1}});
  }
}

TEST_CASE_METHOD(ReplicatorFixture, "a copy that is not filled is unreachable when it is silent") {
  Adopt(1, 20, false);
  clock.Advance(absl::Seconds(10));
  CHECK(replicator->is_unreachable());
  net.Confirm();
  CHECK_FALSE(replicator->is_unreachable());
}

}  // namespace evenshard
