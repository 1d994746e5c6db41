#ifndef EVENSHARD_TESTS_SERVER_UPDATE_POLICY_FIXTURE_H_
#define EVENSHARD_TESTS_SERVER_UPDATE_POLICY_FIXTURE_H_

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/update/make_update_policy.h"
#include "server/update/update_policy.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {

// The worker sets of a view: the ranks from an iteration on.
using WorkerSetList = std::vector<std::pair<uint64_t, std::vector<uint32_t>>>;

inline View ViewOf(const WorkerSetList& list) {
  View view;
  for (const auto& [from, ranks] : list) {
    WorkerSet* worker_set = view.add_worker_set();
    worker_set->set_from_iteration(from);
    for (const uint32_t rank : ranks) worker_set->add_rank(rank);
  }
  return view;
}

// Does what the test says, and records what it hears.
class RecordingObserver final : public ChunkObserver {
 public:
  bool ReadsGradients() const override { return reads_gradients; }
  bool BeforeChange(int index, const StoredChunk& chunk) override { return may_change; }
  std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                  const ChunkChange& change) override {
    changes.push_back(change);
    return keeps_replies ? std::optional<uint64_t>(changes.size()) : std::nullopt;
  }

  void ChangeFailed(const absl::Status& status) override { failure = status; }

  bool reads_gradients = true;  // read by Start
  bool may_change = true;
  bool keeps_replies = false;
  std::vector<ChunkChange> changes;
  absl::Status failure;
};

// An update policy over two chunks of 16 weights, which SGD with learning rate 1 changes by exactly
// the mean gradient. All elements of a gradient are equal.
class PolicyFixture {
 public:
  void Start(int workers, const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all = {"workers=" + std::to_string(workers)};
    all.insert(all.end(), overrides.begin(), overrides.end());
    absl::StatusOr<PlannedConfig> parsed = PlannedConfig::Parse(from_workers ? R"(
      model { from_workers { tensor { name: "fc.weight" shape: 32 } } }
      partition { scheme: MEMORY_BASED }
      shard { address: "127.0.0.1:0" }
      update { policy: SYNC }
      optimizer { kind: SGD learning_rate: 1 }
      limits { chunk_bytes: 64 }
    )"
                                                                             : R"(
      model {
        input { channels: 4 height: 1 width: 1 }
        layer { name: "fc" linear { out_features: 8 bias: false } }
      }
      partition { scheme: MEMORY_BASED }
      shard { address: "127.0.0.1:0" }
      update { policy: SYNC }
      optimizer { kind: SGD learning_rate: 1 }
      training { iterations: 1 }
      compute { backend: EMULATED }
      limits { chunk_bytes: 64 }
    )",
                                                                "test.textproto", all);
    INFO(parsed.status().ToString());
    REQUIRE(parsed.ok());
    config = std::make_unique<PlannedConfig>(*std::move(parsed));
    auto created = ParameterStore::Create(*config, 0);
    REQUIRE(created.ok());
    store = *std::move(created);
    REQUIRE(store->chunks().size() == 2);
    snapshots = std::make_unique<Snapshots>(Snapshots::Options{
        .config = config.get(), .store = store.get(), .is_over = [this] { return is_over; }});
    if (config->clips_mean()) {
      clipping = std::make_unique<Clipping>(
          Clipping::Options{.config = config.get(), .store = store.get(), .on_part = [this] {
                              parts.push_back(clipping->report());
                            }});
    }
    if (config->has_quorum()) {
      quorum = std::make_unique<Quorum>(
          Quorum::Options{.config = config.get(), .store = store.get(), .on_arrival = [this] {
                            arrivals.push_back(quorum->report());
                          }});
    }
    policy = MakeUpdatePolicy(*config, store.get(), ChunkObservers({&observer, snapshots.get()}),
                              &clock, clipping.get(), quorum.get());
    activities = std::vector<WorkerActivity>(workers);
    for (int rank = 0; rank < workers; ++rank) {
      sinks.push_back(std::make_shared<RecordingSink>());
      sessions.push_back(NewSession(rank));
    }
    start = Parameter(0);
  }

  std::shared_ptr<WorkerSession> NewSession(int rank) {
    return std::make_shared<WorkerSession>(rank, 1, nullptr, &activities[rank], &clock);
  }

  absl::Status Push(int rank, uint64_t iteration, float value, int index = 0, bool skip = false) {
    GradientHeader header{.worker = static_cast<uint32_t>(rank),
                          .incarnation = 1,
                          .iteration = iteration,
                          .chunk = store->chunks()[index].info().id,
                          .base_version = base_version,
                          .skip = skip,
                          .encoding = FLOAT32,
                          .view = view,
                          .staleness = staleness,
                          .weight = weight};
    if (config->IsInitial(iteration)) header.assigned = 0;
    const std::vector<float> values(skip ? 0 : 16, value);
    auto owner = std::make_shared<std::string>(reinterpret_cast<const char*>(values.data()),
                                               values.size() * sizeof(float));
    Segments data;
    if (!skip) data.emplace_back(*owner);
    last_owner = owner;
    return policy->Push(index, *sessions[rank], Gradient{header, std::move(data), owner},
                        sinks[rank]);
  }

  bool IsConfirmed(int index = 0) {
    absl::MutexLock lock(&store->chunks()[index].mutex);
    return policy->IsConfirmed(index);
  }

  // Asks for the parameters after an iteration (GradientChunk.onlooks).
  absl::Status Onlook(int rank, uint64_t iteration, int index = 0) {
    const GradientHeader header{.worker = static_cast<uint32_t>(rank),
                                .incarnation = 1,
                                .iteration = iteration,
                                .chunk = store->chunks()[index].info().id,
                                .skip = true,
                                .encoding = FLOAT32,
                                .view = view,
                                .onlooks = true};
    return policy->Push(index, *sessions[rank], Gradient{header, {}, nullptr}, sinks[rank]);
  }

  absl::Status PushAbsent(int rank, uint64_t iteration, int index = 0) {
    const GradientHeader header{.worker = static_cast<uint32_t>(rank),
                                .incarnation = 1,
                                .iteration = iteration,
                                .chunk = store->chunks()[index].info().id,
                                .encoding = FLOAT32,
                                .view = view,
                                .absent = true};
    return policy->Push(index, *sessions[rank], Gradient{header, {}, nullptr}, sinks[rank]);
  }

  // Goes over to the next view, in which the fixture's later pushes are.
  SlotPosition Adopt(const WorkerSetList& worker_sets, PolicyView next = {}) {
    next.number = ++view;
    next.worker_sets = std::make_shared<const WorkerSets>(ViewOf(worker_sets), config->workers());
    const auto position = policy->Adopt(next);
    INFO(position.status().ToString());
    REQUIRE(position.ok());
    return *position;
  }

  float Parameter(int index) {
    StoredChunk& chunk = store->chunks()[index];
    absl::MutexLock lock(&chunk.mutex);
    return chunk.parameters()[0];
  }
  // The slots have agreed on the norm of an iteration's mean gradient.
  void Agree(uint64_t iteration, double norm) {
    store->Learn(AgreedNorm{.iteration = iteration, .squared = norm * norm});
    for (const int index : {0, 1}) CHECK(policy->Resume(index).ok());
  }

  // The slots have agreed on whose gradients count in an iteration.
  void Fix(uint64_t iteration, const std::vector<uint32_t>& ranks) {
    AgreementAnswer answer;
    answer.mutable_quorum()->set_iteration(iteration);
    for (int rank = 0; rank < config->workers(); ++rank) {
      answer.mutable_quorum()->add_counted_before(store->CountedBefore(rank));
    }
    for (const uint32_t rank : ranks) {
      answer.mutable_quorum()->set_counted_before(static_cast<int>(rank), iteration + 1);
    }
    REQUIRE(quorum->AnsweredBy(answer) == iteration);
    quorum->Learn(answer);
    for (const int index : {0, 1}) CHECK(policy->Resume(index).ok());
  }

  // By how much the first element of the first chunk has decreased.
  float Applied() { return start - Parameter(0); }
  uint64_t Iteration(int index = 0) {
    StoredChunk& chunk = store->chunks()[index];
    absl::MutexLock lock(&chunk.mutex);
    return chunk.clock().iteration;
  }
  size_t Replies(int rank) const { return sinks[rank]->replies.size(); }
  size_t Dropped(int rank) const { return sinks[rank]->dropped.size(); }

  bool from_workers = false;  // whether worker 0 gives the initial parameters; read by Start
  FakeClock clock;
  std::unique_ptr<PlannedConfig> config;
  std::unique_ptr<ParameterStore> store;
  RecordingObserver observer;
  bool is_over = false;  // see Snapshots::Options
  std::unique_ptr<Snapshots> snapshots;
  std::vector<WorkerActivity> activities;
  std::vector<std::shared_ptr<WorkerSession>> sessions;  // by rank
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  std::weak_ptr<const void> last_owner;  // of the latest push's data
  uint64_t view = 0;
  uint32_t staleness = 0;  // of later pushes
  float weight = 1;        // likewise
  uint64_t base_version = 0;
  float start = 0;
  std::unique_ptr<Clipping> clipping;  // null unless the config clips the mean
  std::vector<AgreementReport> parts;  // as they were told
  std::unique_ptr<Quorum> quorum;      // null unless the policy is QUORUM
  std::vector<AgreementReport> arrivals;
  std::unique_ptr<UpdatePolicy> policy;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SERVER_UPDATE_POLICY_FIXTURE_H_
