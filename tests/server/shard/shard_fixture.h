#ifndef EVENSHARD_TESTS_SERVER_SHARD_SHARD_FIXTURE_H_
#define EVENSHARD_TESTS_SERVER_SHARD_SHARD_FIXTURE_H_

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/error_kind.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "server/shard/shard.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {

// Records the replies that it gets, from any threads.
class RecordingSink final : public ReplySink {
 public:
  void Reply(uint32_t chunk, uint64_t iteration, bool is_dropped) override {
    absl::MutexLock lock(&mutex_);
    (is_dropped ? dropped : replies).emplace_back(chunk, iteration);
  }
  // Read while none come.
  std::vector<std::pair<uint32_t, uint64_t>> replies;
  std::vector<std::pair<uint32_t, uint64_t>> dropped;  // of pushes that do not count

 private:
  absl::Mutex mutex_;
};

// One shard without RPCs. It has one chunk of four weights, which SGD with learning rate 1 changes
// by exactly the mean gradient.
class ShardFixture {
 public:
  void Start(int workers, const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all = {"workers=" + std::to_string(workers)};
    all.insert(all.end(), overrides.begin(), overrides.end());
    absl::StatusOr<PlannedConfig> parsed = PlannedConfig::Parse(R"(
      model {
        input { channels: 2 height: 1 width: 1 }
        layer { name: "fc" linear { out_features: 2 bias: false } }
      }
      partition { scheme: MEMORY_BASED }
      shard { address: "127.0.0.1:0" }
      update { policy: SYNC }
      optimizer { kind: SGD learning_rate: 1 }
      training { iterations: 1 }
      compute { backend: EMULATED }
      limits { chunk_bytes: 64 exchange_seconds: 60 startup_seconds: 30 held_bytes: 64
               reconnect_seconds: 0 }
    )",
                                                                "test.textproto", all);
    INFO(parsed.status().ToString());
    REQUIRE(parsed.ok());
    config = std::make_unique<PlannedConfig>(*std::move(parsed));
    absl::StatusOr<std::unique_ptr<Shard>> created = Shard::Create(
        {.config = config.get(), .clock = &clock, .observers = observers, .holds_roles = [this] {
           return holds_roles;
         }});
    REQUIRE(created.ok());
    shard = *std::move(created);
    shard->OnEnd([this](const absl::Status& status) {
      if (KindOf(status) == ErrorDetail::RUN_FAILED) failures.push_back(status);
    });
    for (int rank = 0; rank < workers; ++rank) {
      sinks.push_back(std::make_shared<RecordingSink>());
      sessions.push_back(Join(rank, Incarnation(rank)));
    }
    start = Parameters();
  }

  JoinRequest RequestFor(int rank, uint64_t incarnation) const {
    JoinRequest request;
    request.set_worker(rank);
    request.set_incarnation(incarnation);
    request.set_config_fingerprint(config->fingerprint());
    request.set_plan_fingerprint(config->plan().fingerprint());
    request.set_plan_version(kPlanVersion);
    request.set_protocol_version(kProtocolVersion);
    for (const Encoding encoding : {FLOAT16, BFLOAT16, INT8, INT4, E3M0})
      request.add_encodings(encoding);
    return request;
  }

  // Has the incarnation take the rank and open a stream.
  std::shared_ptr<WorkerSession> Join(int rank, uint64_t incarnation) {
    const auto joined = shard->Join(RequestFor(rank, incarnation), "test");
    INFO(joined.status().ToString());
    REQUIRE(joined.ok());
    const auto session = shard->OpenStream(rank, incarnation);
    REQUIRE(session.ok());
    return *session;
  }

  absl::Status Leave(int rank, const std::string& error = "") {
    LeaveRequest leave;
    leave.set_worker(rank);
    leave.set_incarnation(Incarnation(rank));
    leave.set_error(error);
    return shard->Leave(leave);
  }

  static uint64_t Incarnation(int rank) { return 100 + rank; }

  std::vector<float> Parameters() {
    StoredChunk& chunk = shard->store().chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    return {chunk.parameters().begin(), chunk.parameters().end()};
  }

  // Returns the sum of the applied gradients: by how much the parameters have decreased.
  std::vector<float> Applied() {
    std::vector<float> change = Parameters();
    for (size_t i = 0; i < change.size(); ++i) change[i] = start[i] - change[i];
    return change;
  }

  GradientHeader Header(int rank, uint64_t iteration, uint64_t base_version = 0) {
    return {.worker = static_cast<uint32_t>(rank),
            .incarnation = Incarnation(rank),
            .iteration = iteration,
            .chunk = 0,
            .base_version = base_version,
            .encoding = config->proto().exchange().gradient_encoding()};
  }

  // Pushes `values` in the config's encoding, even if the header has another one.
  absl::Status Push(const GradientHeader& header, const std::vector<float>& values) {
    const Encoding encoding = config->proto().exchange().gradient_encoding();
    auto owner = std::make_shared<std::string>(EncodedBytes(encoding, values.size()), '\0');
    Encode(encoding, values, owner->data());
    Segments data;
    if (!owner->empty()) data.emplace_back(*owner);
    last_owner = owner;
    return shard->Push(*sessions[header.worker], Gradient{header, std::move(data), owner},
                       sinks[header.worker]);
  }

  absl::Status Push(int rank, uint64_t iteration, const std::vector<float>& values,
                    uint64_t base_version = 0) {
    return Push(Header(rank, iteration, base_version), values);
  }

  size_t Replies(int rank) const { return sinks[rank]->replies.size(); }

  FakeClock clock;
  bool holds_roles = true;                // see ViewLink::HoldsRoles
  std::vector<ChunkObserver*> observers;  // of the shard that Start makes
  ShardCounters counters;                 // for objects that a test makes besides the shard
  std::unique_ptr<PlannedConfig> config;
  std::vector<absl::Status> failures;
  std::vector<std::shared_ptr<WorkerSession>> sessions;  // by rank
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  std::weak_ptr<const void> last_owner;  // owner of the latest push's gradient
  std::vector<float> start;
  std::shared_ptr<Shard> shard;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SERVER_SHARD_SHARD_FIXTURE_H_
