#include "server/rpc/chunk_source.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "proto/parameter_server.pb.h"
#include "server/store/chunk_observer.h"
#include "tests/server/shard/shard_fixture.h"

namespace evenshard {

TEST_CASE_METHOD(ShardFixture, "a worker pulls nothing that could be lost with this process") {
  // It would go on from an update that the others make once more, and keep the lost one.
  struct Replica final : ChunkObserver {
    std::optional<uint64_t> Changed(int, const StoredChunk&, const ChunkChange&) override {
      return 1;
    }
  } replica;
  observers = {&replica};
  const std::string policy = GENERATE("SYNC", "ASYNC");
  Start(1, {"update.policy=" + policy});
  const auto source = [&](std::optional<uint32_t> worker) {
    PullRequest request;
    request.set_plan_fingerprint(config->plan().fingerprint());
    if (worker.has_value()) request.set_worker(*worker);
    return *PullSource(shard, request);
  };
  const auto pulls = source(0);
  REQUIRE(Push(0, 0, {1, 2, 3, 4}).ok());
  CHECK(source(std::nullopt)->TakeNext()->message.has_value());  // of somebody who only looks
  // Under ASYNC the others' updates are not made again by this worker's.
  if (policy == "SYNC") {
    const ChunkSource::Next next = *pulls->TakeNext();
    CHECK_FALSE(next.message.has_value());
    CHECK_FALSE(next.is_end);
    CHECK(next.pause < absl::Seconds(1));
    shard->Confirm(0, 1);
  }
  CHECK(pulls->TakeNext()->message.has_value());
  CHECK(pulls->TakeNext()->is_end);
}

TEST_CASE_METHOD(ShardFixture, "a worker's pull ends when the slot is another process's") {
  Start(1);
  PullRequest request;
  request.set_plan_fingerprint(config->plan().fingerprint());
  request.set_worker(0);
  const auto pulls = *PullSource(shard, request);
  shard->Retire(absl::UnavailableError("moved"));
  CHECK(pulls->TakeNext().status() == absl::UnavailableError("moved"));
}

}  // namespace evenshard
