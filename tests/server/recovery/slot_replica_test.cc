#include "server/recovery/slot_replica.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/recovery/slot_fixture.h"

namespace evenshard {
namespace {

constexpr uint64_t kPrimary = 10;
constexpr uint64_t kView = 4;

// The copy of slot 0, and the messages that its primary would send.
class CopyFixture {
 public:
  void Start(const std::vector<std::string>& overrides = {}, bool is_complete = true) {
    config = std::make_unique<PlannedConfig>(SlotConfig(overrides));
    store = MakeStore();
    copy = std::make_unique<SlotReplica>(config.get(), 0, store, is_complete);
    Adopt(kView);
  }
  std::shared_ptr<ParameterStore> MakeStore() {
    auto made = ParameterStore::Create(*config, 0);
    REQUIRE(made.ok());
    return *std::move(made);
  }
  void Adopt(uint64_t number, uint64_t primary = kPrimary, bool is_complete = true) {
    View view;
    view.set_number(number);
    *view.add_slot()->mutable_primary() = SlotFixture::Process(0, primary);
    view.mutable_slot(0)->set_replica_is_complete(is_complete);
    copy->Adopt(view);
  }
  const Chunk& chunk() { return store->chunks()[0].info(); }

  // A change of the first chunk that leads to this version and iteration.
  ReplicaMessage Change(uint64_t version, uint64_t iteration) {
    ReplicaMessage message;
    message.header.set_view(kView);
    message.header.set_chunk(chunk().id);
    message.header.set_version(version);
    message.header.set_iteration(iteration);
    message.header.set_encoding(FLOAT32);
    message.header.set_scale(0.5f);
    values.assign(chunk().size, static_cast<float>(version));
    message.data = {{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
    return message;
  }
  ReplicaMessage State(uint64_t version, uint64_t iteration, float value) {
    ReplicaMessage message = Change(version, iteration);
    message.header.set_is_state(true);
    values.assign(chunk().size * store->chunks()[0].arrays(), value);
    message.data = {{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
    return message;
  }
  absl::Status Take(const ReplicaMessage& message, uint64_t view = kView,
                    uint64_t primary = kPrimary) {
    return copy->Take(view, primary, message).status();
  }

  std::unique_ptr<PlannedConfig> config;
  std::shared_ptr<ParameterStore> store;
  std::unique_ptr<SlotReplica> copy;
  std::vector<float> values;
};

}  // namespace

TEST_CASE_METHOD(CopyFixture, "a copy assigns what its primary has, and counts it as that does") {
  Start({"optimizer.kind=ADAM"});
  ReplicaMessage state = Change(/*version=*/0, /*iteration=*/1);
  values.assign(chunk().size, 0.25f);
  state.header.set_assigned(2);
  state.header.set_steps(9);
  REQUIRE(Take(state).ok());
  ReplicaMessage parameters = Change(/*version=*/1, /*iteration=*/2);
  parameters.header.set_assigned(0);
  REQUIRE(Take(parameters).ok());
  {
    StoredChunk& stored = store->chunks()[0];
    absl::MutexLock lock(&stored.mutex);
    CHECK(stored.array(0)[0] == 1);
    CHECK(stored.array(1)[0] == 0);
    CHECK(stored.array(2)[0] == 0.25f);
    CHECK(stored.clock() ==
          ChunkClock{
              .version = 1, .iteration = 2, .assignments = 2, .recent_assignments = 2, .steps = 9});
  }
  ReplicaMessage wrong = Change(2, 3);
  wrong.header.set_assigned(3);
  CHECK_THAT(std::string(Take(wrong).message()), Catch::Contains("it has arrays 0 to 2"));
}

TEST_CASE_METHOD(CopyFixture, "a copy takes the next change, and confirms one that it has") {
  Start();
  const SlotState initial = StateOf(*store);
  const auto receipt = copy->Take(kView, kPrimary, Change(1, 1));
  REQUIRE(receipt.ok());
  CHECK(receipt->chunk() == chunk().id);
  CHECK(receipt->version() == 1);
  CHECK(receipt->iteration() == 1);
  const SlotState after = StateOf(*store);
  CHECK(after.clocks[0] == ChunkClock{.version = 1, .iteration = 1, .steps = 1});
  CHECK(after.arrays[0][0] == initial.arrays[0][0] - 0.125f * 0.5f);
  CHECK(Take(Change(1, 1)).ok());
  CHECK(StateOf(*store) == after);
  // An iteration to which nobody contributed.
  ReplicaMessage empty = Change(1, 2);
  empty.data.clear();
  CHECK(Take(empty).ok());
  CHECK(StateOf(*store).clocks[0] == ChunkClock{.version = 1, .iteration = 2, .steps = 1});
  CHECK(StateOf(*store).arrays == after.arrays);
  // One in which nobody had a gradient, and the state of a chunk after such a one.
  empty.header.set_iteration(3);
  empty.header.set_all_absent(true);
  CHECK(Take(empty).ok());
  CHECK(StateOf(*store).clocks[0] ==
        ChunkClock{.version = 1, .iteration = 3, .all_absent = true, .steps = 1});
  ReplicaMessage state = State(2, 5, 1);
  state.header.set_all_absent(true);
  CHECK(Take(state).ok());
  CHECK(StateOf(*store).clocks[0].all_absent);
  CHECK(Take(Change(3, 6)).ok());
  CHECK_FALSE(StateOf(*store).clocks[0].all_absent);
}

TEST_CASE_METHOD(CopyFixture, "a copy makes a change with what came with the gradients") {
  Start({"optimizer={kind: MOMENTUM learning_rate: 0.5 momentum: 0.5}"});
  StoredChunk& chunk = store->chunks()[0];
  const auto first = [&] {
    absl::ReaderMutexLock lock(&chunk.mutex);
    return chunk.parameters()[0];
  };
  float w = first(), v = 0;
  ReplicaMessage message = Change(1, 1);
  const auto expect = [&](float rate, float momentum, float decay) {
    const float version = static_cast<float>(message.header.version());
    v = momentum * v + (0.5f * version + decay * w);
    w -= rate * v;
    REQUIRE(Take(message).ok());
    CHECK(first() == Approx(w));
  };
  expect(0.5f, 0.5f, 0);
  message = Change(2, 2);
  message.header.set_learning_rate(0.25f);
  message.header.set_momentum(0.75f);
  message.header.set_weight_decay(0.125f);
  expect(0.25f, 0.75f, 0.125f);
  message = Change(3, 3);
  expect(0.5f, 0.5f, 0);
}

TEST_CASE_METHOD(CopyFixture, "a copy notices that changes are missing") {
  Start();
  CHECK(absl::IsDataLoss(Take(Change(2, 2))));
  CHECK(KindOf(Take(Change(2, 2))) == ErrorDetail::RUN_FAILED);
  CHECK(absl::IsDataLoss(Take(Change(1, 2))));
  CHECK(absl::IsDataLoss(Take(Change(2, 1))));
  CHECK(StateOf(*store).clocks[0] == ChunkClock());
  CHECK(Take(Change(1, 1)).ok());
}

TEST_CASE_METHOD(CopyFixture, "a copy takes messages of its view's primary only") {
  Start();
  const SlotState initial = StateOf(*store);
  CHECK(absl::IsFailedPrecondition(Take(Change(1, 1), kView - 1)));
  CHECK(KindOf(Take(Change(1, 1), kView - 1)) == ErrorDetail::OTHER);
  CHECK(absl::IsFailedPrecondition(Take(Change(1, 1), kView, kPrimary + 1)));
  CHECK(absl::IsUnavailable(Take(Change(1, 1), kView + 1)));
  Adopt(kView + 1, 11);
  CHECK(absl::IsFailedPrecondition(Take(Change(1, 1), kView)));
  CHECK(absl::IsFailedPrecondition(Take(Change(1, 1), kView + 1)));
  CHECK(StateOf(*store) == initial);
  CHECK(Take(Change(1, 1), kView + 1, 11).ok());
  CHECK(copy->Retire() == store);
  CHECK(absl::IsFailedPrecondition(Take(Change(2, 2), kView + 1, 11)));
}

TEST_CASE_METHOD(CopyFixture, "a copy that is not complete takes no change before the state") {
  Start({"optimizer.kind=ADAM"}, /*is_complete=*/false);
  CHECK(absl::IsDataLoss(Take(Change(1, 1))));
  CHECK(Take(State(7, 9, 3)).ok());
  const SlotState filled = StateOf(*store);
  CHECK(filled.clocks[0] == ChunkClock{.version = 7, .iteration = 9});
  for (int i = 0; i < 3; ++i) CHECK(filled.arrays[i] == std::vector<float>(chunk().size, 3));
  CHECK(Take(State(7, 9, 5)).ok());  // it has it
  CHECK(StateOf(*store) == filled);
  CHECK(Take(Change(8, 10)).ok());
  CHECK(Take(State(9, 12, 6)).ok());  // filled again, by a primary that has come further
  CHECK(StateOf(*store).arrays[0][0] == 6);
}

TEST_CASE_METHOD(CopyFixture, "a copy refuses what does not fit, and has not changed then") {
  const bool is_async = GENERATE(false, true);
  Start({is_async ? "update.policy=ASYNC" : "update.policy=SYNC"});
  const SlotState initial = StateOf(*store);
  ReplicaMessage good = Change(1, 1);
  if (is_async) good.header.set_worker(1);
  std::vector<ReplicaMessage> bad(5, good);
  bad[0].header.set_chunk(100000);
  bad[1].data[0].remove_suffix(4);
  bad[2].data.push_back(bad[2].data[0]);
  bad[3].header.set_encoding(static_cast<Encoding>(77));
  if (is_async) {
    bad[4].header.clear_worker();
    bad.push_back(good);
    bad[5].header.set_worker(2);
  } else {
    bad[4].header.set_worker(0);
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    CAPTURE(i);
    CHECK(absl::IsInvalidArgument(Take(bad[i])));
  }
  ReplicaMessage state = State(1, 1, 1);
  state.data[0].remove_suffix(4);
  CHECK(absl::IsInvalidArgument(Take(state)));
  state = State(1, 1, 1);
  for (int i = 0; i < 3; ++i) state.header.add_next_iteration(1);
  CHECK(absl::IsInvalidArgument(Take(state)));
  CHECK(StateOf(*store) == initial);
  CHECK(Take(good).ok());
}

TEST_CASE_METHOD(CopyFixture, "a copy keeps what was sent for workers of the config only") {
  Start({"update={policy: ASYNC asynchrony { correction: GAP_AWARE }}"});
  ReplicaMessage change = Change(/*version=*/1, /*iteration=*/1);
  change.header.set_worker(0);
  change.header.add_sent_to(2);
  CHECK(absl::IsInvalidArgument(Take(change)));
  change.header.set_sent_to(0, 1);
  CHECK(Take(change).ok());
  // A state has a version for each worker, and an array.
  ReplicaMessage state = State(/*version=*/2, /*iteration=*/0, /*value=*/1);
  state.header.mutable_next_iteration()->Resize(2, 2);
  CHECK(absl::IsInvalidArgument(Take(state)));
  values.resize(chunk().size * (store->chunks()[0].arrays() + 2));
  state.data = {{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
  CHECK(absl::IsInvalidArgument(Take(state)));
  state.header.mutable_sent_version()->Resize(2, 1);
  CHECK(Take(state).ok());
}

TEST_CASE_METHOD(CopyFixture, "a copy takes norms that are whole, finite and not negative") {
  Start({"update.max_norm=2"});
  const auto with_norms = [this](uint64_t iteration, const std::vector<double>& norms) {
    ReplicaMessage message = Change(1, iteration);
    message.header.mutable_norms()->Add(norms.begin(), norms.end());
    return message;
  };
  const SlotState initial = StateOf(*store);
  CHECK(absl::IsInvalidArgument(Take(with_norms(1, {}))));
  CHECK(absl::IsInvalidArgument(Take(with_norms(1, {1}))));
  CHECK(absl::IsInvalidArgument(Take(with_norms(1, {1, 2, 3}))));
  CHECK(absl::IsInvalidArgument(Take(with_norms(1, {1, -2}))));
  CHECK(absl::IsInvalidArgument(Take(with_norms(1, {1, std::nan("")}))));
  CHECK(StateOf(*store) == initial);
  const std::vector<double> norms = {1, 2};
  CHECK(Take(with_norms(1, norms)).ok());
  CHECK(StateOf(*store).clocks[0].norms == norms);
  // A change without data has none, and leaves them as they are.
  ReplicaMessage empty = with_norms(2, norms);
  empty.data.clear();
  CHECK(absl::IsInvalidArgument(Take(empty)));
  empty.header.clear_norms();
  CHECK(Take(empty).ok());
  CHECK(StateOf(*store).clocks[0].norms == norms);
}

TEST_CASE_METHOD(CopyFixture, "a copy takes what the slots can have agreed on only") {
  Start({"update.policy=QUORUM", "update.quorum=1"});
  const auto with_norm = [this](double squared) {
    ReplicaMessage message = Change(1, 1);
    message.header.set_squared_norm(squared);
    return message;
  };
  const auto with_set = [this](uint64_t iteration, const std::vector<uint64_t>& counted_before) {
    ReplicaMessage message = Change(1, 1);
    QuorumSet& set = *message.header.mutable_quorum();
    set.set_iteration(iteration);
    set.mutable_counted_before()->Add(counted_before.begin(), counted_before.end());
    return message;
  };
  const SlotState initial = StateOf(*store);
  for (const ReplicaMessage& bad :
       {with_norm(-1), with_norm(std::nan("")), with_norm(HUGE_VAL), with_set(0, {1}),
        with_set(0, {1, 2}), with_set(1, {0, UINT64_MAX}), with_set(2, {0, 0})}) {
    CAPTURE(bad.header.ShortDebugString());
    const absl::Status refused = Take(bad);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(KindOf(refused) == ErrorDetail::RUN_FAILED);
  }
  CHECK(StateOf(*store) == initial);
  CHECK_FALSE(store->agreed_norm().has_value());
  CHECK_FALSE(store->agreed_set().has_value());
  CHECK(Take(with_set(1, {1, 2})).ok());
  CHECK(store->agreed_set()->iteration == 1);
  ReplicaMessage next = Change(2, 2);
  next.header.set_squared_norm(4);
  CHECK(Take(next).ok());
  CHECK(store->agreed_norm()->squared == 4);
}

TEST_CASE_METHOD(CopyFixture, "what its primary has agreed on counts in place of a copy's own") {
  Start({"update.policy=QUORUM", "update.quorum=1"});
  // Before a handover, and no update was made by it.
  store->Learn(AgreedSet{.iteration = 1, .counted_before = {2, 2}});
  store->Learn(AgreedNorm{.iteration = 0, .squared = 9});
  ReplicaMessage message = Change(1, 1);
  message.header.set_squared_norm(4);
  message.header.mutable_quorum()->set_iteration(1);
  for (const uint64_t before : {1, 2}) {
    message.header.mutable_quorum()->add_counted_before(before);
  }
  CHECK(Take(message).ok());
  CHECK(store->agreed_set()->counted_before == std::vector<uint64_t>{1, 2});
  CHECK(store->agreed_norm()->squared == 4);
}

TEST_CASE_METHOD(CopyFixture, "a state that names a worker is taken as one that names none") {
  Start();
  REQUIRE(Take(Change(1, 1)).ok());
  ReplicaMessage state = State(2, 2, 5);
  state.header.set_worker(1 << 30);
  CHECK(Take(state).ok());
  CHECK(StateOf(*store).arrays[0] == std::vector<float>(chunk().size, 5));
}

TEST_CASE_METHOD(CopyFixture, "a run that does not limit gradients has no norms") {
  Start();
  ReplicaMessage message = Change(1, 1);
  message.header.add_norms(1);
  message.header.add_norms(2);
  CHECK(absl::IsInvalidArgument(Take(message)));
}

TEST_CASE_METHOD(CopyFixture, "under ASYNC each worker's pushes have an order of their own") {
  Start({"update.policy=ASYNC"});
  const auto change = [this](uint32_t worker, uint64_t version, uint64_t next) {
    ReplicaMessage message = Change(version, next);
    message.header.set_worker(worker);
    return message;
  };
  CHECK(Take(change(1, 1, 5)).ok());
  CHECK(Take(change(0, 2, 1)).ok());
  CHECK(Take(change(1, 1, 5)).ok());  // it has it
  CHECK(absl::IsDataLoss(Take(change(1, 4, 7))));
  CHECK(Take(change(1, 3, 6)).ok());
  CHECK(StateOf(*store).clocks[0] ==
        ChunkClock{.version = 3, .iteration = 0, .next_iteration = {1, 6}, .steps = 3});
}

TEST_CASE_METHOD(CopyFixture, "a replica that a new primary fills keeps nothing of the old one's") {
  Start();
  REQUIRE(Take(Change(1, 1)).ok());
  REQUIRE(Take(Change(2, 2)).ok());  // the primary dies before any other process has it
  Adopt(kView + 2, 11, /*is_complete=*/false);
  CHECK(absl::IsDataLoss(Take(Change(3, 3), kView + 2, 11)));
  CHECK(Take(State(2, 2, 5), kView + 2, 11).ok());
  CHECK(StateOf(*store).arrays[0] == std::vector<float>(chunk().size, 5));
  Adopt(kView + 3, 11, /*is_complete=*/false);
  CHECK(Take(State(1, 1, 6), kView + 3, 11).ok());  // late, of a stream that was opened anew
  CHECK(StateOf(*store).arrays[0] == std::vector<float>(chunk().size, 5));
}

TEST_CASE_METHOD(CopyFixture, "a new primary's first state comes while the copy adopts the view") {
  Start();
  for (int round = 0; round < 200; ++round) {
    store = MakeStore();
    copy = std::make_unique<SlotReplica>(config.get(), 0, store, /*is_complete=*/true);
    Adopt(kView);
    REQUIRE(Take(Change(1, 1)).ok());
    std::thread adopts([this] { Adopt(kView + 2, 11, /*is_complete=*/false); });
    const ReplicaMessage state = State(1, 1, 5);
    while (!Take(state, kView + 2, 11).ok()) std::this_thread::yield();
    adopts.join();
    REQUIRE(StateOf(*store).arrays[0] == std::vector<float>(chunk().size, 5));
  }
}

}  // namespace evenshard
