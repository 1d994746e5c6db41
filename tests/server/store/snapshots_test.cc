#include "server/store/snapshots.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

using Progress = Snapshots::Reader::Progress;

// What a reader has taken: the first parameter of each chunk, by the chunk's id.
struct Reading {
  std::unique_ptr<Snapshots::Reader> reader;
  int wakes = 0;
  std::map<uint32_t, float> values;
  std::map<uint32_t, uint64_t> versions;
  std::vector<std::shared_ptr<const void>> owners;
  absl::StatusOr<Progress> end = Progress::kTaken;
};

}  // namespace

// Two chunks of 16 weights (64 bytes), which SGD with learning rate 1 changes by the gradient.
class SnapshotsFixture : public PolicyFixture {
 public:
  // Starts with all parameters 100.
  void Begin(int workers, const std::vector<std::string>& overrides = {}) {
    Start(workers, overrides);
    for (StoredChunk& chunk : store->chunks()) {
      absl::MutexLock lock(&chunk.mutex);
      for (float& parameter : chunk.mutable_array(0)) parameter = 100;
    }
  }
  absl::Status Open(uint64_t k, Reading& reading) {
    auto opened = snapshots->Open(k, [&reading] { ++reading.wakes; });
    if (opened.ok()) reading.reader = *std::move(opened);
    return opened.status();
  }
  // Takes one chunk. Returns what Take has returned.
  Progress TakeOne(Reading& reading) {
    reading.end = reading.reader->Take([&](const Snapshots::Taken& taken) {
      for (const float value : taken.parameters) CHECK(value == taken.parameters[0]);
      CHECK(taken.parameters.size() == 16);
      reading.values[taken.info.id] = taken.parameters[0];
      reading.versions[taken.info.id] = taken.clock.version;
      reading.owners.push_back(taken.owner);
    });
    return reading.end.ok() ? *reading.end : Progress::kAll;
  }
  // Takes what is ready.
  void Take(Reading& reading) {
    while (TakeOne(reading) == Progress::kTaken) {
    }
  }
  // One iteration of one worker at a chunk.
  void Train(int index, uint64_t iteration, float gradient = 1) {
    const absl::Status pushed = Push(0, iteration, gradient, index);
    INFO(pushed.ToString());
    REQUIRE(pushed.ok());
  }
};

TEST_CASE_METHOD(SnapshotsFixture, "a chunk is copied before the update that would change it") {
  Begin(1);
  Reading reading;
  REQUIRE(Open(0, reading).ok());
  CHECK(TakeOne(reading) == Progress::kTaken);  // chunk 0, as it lies
  Train(0, 0);
  Train(1, 0);
  Train(1, 1);
  Take(reading);
  REQUIRE(reading.end.ok());
  CHECK(*reading.end == Progress::kAll);
  CHECK(reading.values == std::map<uint32_t, float>{{0, 100}, {1, 100}});
  CHECK(reading.versions == std::map<uint32_t, uint64_t>{{0, 0}, {1, 0}});
  CHECK(reading.owners[0] == nullptr);
  CHECK(reading.owners[1] != nullptr);
  CHECK(Parameter(1) == 98);
}

TEST_CASE_METHOD(SnapshotsFixture, "a snapshot waits for chunks that have not come so far") {
  Begin(1);
  Reading reading;
  REQUIRE(Open(2, reading).ok());
  Take(reading);
  CHECK(*reading.end == Progress::kNoneYet);
  CHECK(reading.values.empty());
  Train(1, 0);
  CHECK(reading.wakes == 0);
  Train(1, 1);
  CHECK(reading.wakes == 1);
  Take(reading);
  CHECK(*reading.end == Progress::kNoneYet);
  CHECK(reading.values == std::map<uint32_t, float>{{1, 98}});
  Train(1, 2);  // it has been taken
  CHECK(reading.wakes == 1);
  for (const uint64_t iteration : {0, 1, 2, 3}) Train(0, iteration);
  CHECK(reading.wakes == 2);
  Take(reading);
  CHECK(*reading.end == Progress::kAll);
  CHECK(reading.values == std::map<uint32_t, float>{{0, 98}, {1, 98}});
}

TEST_CASE_METHOD(SnapshotsFixture, "an iteration that a chunk has passed is refused") {
  Begin(1);
  for (const uint64_t iteration : {0, 1, 2}) Train(1, iteration);
  Reading reading;
  const absl::Status passed = Open(2, reading);
  CHECK(passed.code() == absl::StatusCode::kAborted);
  CHECK(passed.message() == "chunk 1 of shard 0 has passed iteration 2: it is at 3");
  CHECK(Open(3, reading).ok());
}

TEST_CASE_METHOD(SnapshotsFixture, "an iteration without an update is one too") {
  Begin(1);
  Reading reading;
  REQUIRE(Open(1, reading).ok());
  for (const int index : {0, 1}) {
    REQUIRE(Push(0, 0, 0, index, /*skip=*/true).ok());
    Train(index, 1);
  }
  Take(reading);
  CHECK(*reading.end == Progress::kAll);
  CHECK(reading.values == std::map<uint32_t, float>{{0, 100}, {1, 100}});
}

TEST_CASE_METHOD(SnapshotsFixture, "readers of one iteration share its copies") {
  Begin(1, {"limits.snapshot_bytes=128"});  // those of one snapshot
  Reading first;
  Reading second;
  REQUIRE(Open(0, first).ok());
  REQUIRE(Open(0, second).ok());
  for (const int index : {0, 1}) Train(index, 0);
  // Who comes now finds the copies that somebody still needs.
  CHECK(TakeOne(first) == Progress::kTaken);
  Reading third;
  REQUIRE(Open(0, third).ok());
  for (Reading* reading : {&first, &second, &third}) {
    Take(*reading);
    REQUIRE(reading->end.ok());
    CHECK(reading->values == std::map<uint32_t, float>{{0, 100}, {1, 100}});
  }
  CHECK(first.owners == second.owners);
  CHECK(first.owners == third.owners);
  Reading late;
  CHECK(Open(0, late).code() == absl::StatusCode::kAborted);

  // Their memory is used again when nobody has them.
  Reading next;
  REQUIRE(Open(1, next).ok());
  for (Reading* reading : {&first, &second, &third}) reading->owners.clear();
  for (const int index : {0, 1}) Train(index, 1);
  Take(next);
  REQUIRE(next.end.ok());
  CHECK(next.values == std::map<uint32_t, float>{{0, 99}, {1, 99}});
}

TEST_CASE_METHOD(SnapshotsFixture, "what is too much to copy fails the snapshot, not the update") {
  Begin(1, {"limits.snapshot_bytes=64"});  // one chunk
  Reading done;
  Reading failed;
  Reading later;
  REQUIRE(Open(0, done).ok());
  CHECK(TakeOne(done) == Progress::kTaken);
  CHECK(TakeOne(done) == Progress::kTaken);
  REQUIRE(Open(0, failed).ok());
  REQUIRE(Open(1, later).ok());
  Take(later);
  for (const int index : {0, 1}) Train(index, 0);
  CHECK(Iteration(0) == 1);
  CHECK(Iteration(1) == 1);
  Take(failed);
  CHECK(failed.end.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(absl::StrContains(failed.end.status().message(), "limits.snapshot_bytes (64)"));
  Take(done);
  CHECK(done.end.ok());
  failed.reader.reset();
  // The copy of chunk 0 is free again.
  Take(later);
  CHECK(*later.end == Progress::kAll);
  CHECK(later.values == std::map<uint32_t, float>{{0, 99}, {1, 99}});
}

TEST_CASE_METHOD(SnapshotsFixture, "a reader that waits is woken by the failure of its snapshot") {
  Begin(1, {"limits.snapshot_bytes=64"});
  Reading reading;
  REQUIRE(Open(1, reading).ok());
  Take(reading);
  for (const int index : {0, 1}) Train(index, 0);
  CHECK(reading.wakes == 1);
  for (const int index : {0, 1}) Train(index, 1);
  Take(reading);
  CHECK(reading.end.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE_METHOD(SnapshotsFixture, "by default there is memory for two whole snapshots") {
  Begin(1);
  Reading readings[3];
  for (uint64_t k = 0; k < 2; ++k) {
    REQUIRE(Open(k, readings[k]).ok());
    for (const int index : {0, 1}) Train(index, k);
  }
  REQUIRE(Open(2, readings[2]).ok());
  for (const int index : {0, 1}) Train(index, 2);
  for (Reading& reading : readings) Take(reading);
  CHECK(readings[0].end.ok());
  CHECK(readings[1].end.ok());
  CHECK(readings[2].end.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE_METHOD(SnapshotsFixture, "copies that are being sent outlive the shard") {
  Begin(1);
  std::shared_ptr<const void> owner;
  absl::Span<const float> parameters;
  {
    Reading reading;
    REQUIRE(Open(0, reading).ok());
    Train(0, 0);
    REQUIRE(reading.reader
                ->Take([&](const Snapshots::Taken& taken) {
                  owner = taken.owner;
                  parameters = taken.parameters;
                })
                .ok());
  }
  policy.reset();
  snapshots.reset();
  REQUIRE(owner != nullptr);
  CHECK(parameters[15] == 100);
}

TEST_CASE_METHOD(SnapshotsFixture, "readers end with the shard") {
  Begin(1);
  Reading reading;
  REQUIRE(Open(1, reading).ok());
  Take(reading);
  CHECK(*reading.end == Progress::kNoneYet);
  snapshots->End(absl::UnavailableError("the slot is another process's"));
  CHECK(reading.wakes == 1);
  Take(reading);
  CHECK(reading.end.status() == absl::UnavailableError("the slot is another process's"));
  Reading late;
  CHECK(Open(1, late).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE_METHOD(SnapshotsFixture, "an update that leaves float32's range ends all readers") {
  Begin(1);
  Reading reading;
  REQUIRE(Open(0, reading).ok());
  REQUIRE(Push(0, 0, -3e38f, 0).ok());
  REQUIRE(Push(0, 1, -3e38f, 0).code() == absl::StatusCode::kOutOfRange);
  Take(reading);
  CHECK(reading.end.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(reading.end.status().message(), "the run has failed"));
}

TEST_CASE_METHOD(SnapshotsFixture,
                 "ASYNC: an update that leaves float32's range ends all readers") {
  Begin(1, {"update.policy=ASYNC"});
  Reading reading;
  REQUIRE(Open(1, reading).ok());
  REQUIRE(Push(0, 0, -3e38f, 0).ok());
  REQUIRE(Push(0, 1, -3e38f, 0).code() == absl::StatusCode::kOutOfRange);
  Take(reading);
  CHECK(reading.values.empty());  // the chunk has an infinite parameter
  CHECK(reading.end.status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE_METHOD(SnapshotsFixture, "a snapshot of an iteration that will not come ends") {
  Begin(1);
  Reading reading;
  REQUIRE(Open(1, reading).ok());
  Take(reading);
  Train(0, 0);
  is_over = true;
  snapshots->WakeAll();
  CHECK(reading.wakes == 1);
  Take(reading);
  CHECK(reading.values.size() == 1);  // what is there is sent
  CHECK(reading.end.status().code() == absl::StatusCode::kOutOfRange);
  CHECK(absl::StrContains(reading.end.status().message(), "over before iteration 1"));
  // The iteration that it has ended at is there.
  Train(1, 0);
  Reading last;
  REQUIRE(Open(1, last).ok());
  Take(last);
  CHECK(*last.end == Progress::kAll);
}

TEST_CASE_METHOD(SnapshotsFixture, "ASYNC: every chunk after enough updates, as it is then") {
  Begin(2, {"update.policy=ASYNC"});
  Reading reading;
  REQUIRE(Open(2, reading).ok());
  REQUIRE(Push(0, 0, 1, 0).ok());
  REQUIRE(Push(1, 0, 1, 0, /*skip=*/true).ok());
  Take(reading);
  CHECK(*reading.end == Progress::kNoneYet);  // one update and one push without
  CHECK(reading.values.empty());
  REQUIRE(Push(1, 1, 1, 0).ok());
  CHECK(reading.wakes == 1);
  REQUIRE(Push(0, 1, 1, 0).ok());
  Take(reading);
  CHECK(reading.values == std::map<uint32_t, float>{{0, 97}});
  CHECK(reading.versions == std::map<uint32_t, uint64_t>{{0, 3}});
  for (const uint64_t iteration : {0, 1, 2, 3}) REQUIRE(Push(0, iteration, 1, 1).ok());
  Take(reading);
  CHECK(*reading.end == Progress::kAll);
  CHECK(reading.versions == std::map<uint32_t, uint64_t>{{0, 3}, {1, 4}});
  Reading late;
  CHECK(Open(1, late).ok());  // nothing is too late
}

}  // namespace evenshard
