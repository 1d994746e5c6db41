// What update.max_norm makes of gradients that are too large. The chunks have 16 elements, so that
// the norm of a gradient is four times its value. Factors are powers of two, which float32 has
// exactly.

#include "server/update/norm_limit.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/wire/encoding.h"
#include "server/session/worker_buffers.h"
#include "tests/server/update/policy_fixture.h"
#include "tests/testing/captured_log.h"

namespace evenshard {
namespace {

constexpr float kHuge = 1 << 20;
// The parameters begin with random numbers, so that differences of them are rounded.
Approx Nearly(double value) { return Approx(value).epsilon(1e-4); }

constexpr char kTwice[] = "update.max_norm=2";

}  // namespace

class Fixture : public PolicyFixture {
 public:
  ShardStats Stats() const {
    ShardStats stats;
    for (int rank = 0; rank < config->workers(); ++rank) stats.add_worker()->set_worker(rank);
    policy->FillStats(&stats);
    return stats;
  }
  std::vector<uint64_t> LimitedByRank() const {
    std::vector<uint64_t> limited;
    const ShardStats stats = Stats();
    for (const WorkerStats& worker : stats.worker()) limited.push_back(worker.limited_pushes());
    return limited;
  }
  // Pushes at an iteration, by rank. Returns what they take from a parameter together.
  float PushAll(uint64_t iteration, const std::vector<float>& values) {
    const float before = Applied();
    for (size_t rank = 0; rank < values.size(); ++rank) {
      REQUIRE(Push(static_cast<int>(rank), iteration, values[rank]).ok());
    }
    return Applied() - before;
  }
};

TEST_CASE_METHOD(Fixture, "SYNC scales a gradient down to max_norm times the median") {
  const bool deterministic = GENERATE(false, true);
  const bool clips = GENERATE(false, true);
  Start(4, {kTwice, deterministic ? "update.deterministic=true" : "update.deterministic=false",
            clips ? "update.clip_global_norm=1e20" : "update.clip_global_norm=0"});
  const auto agree = [&](uint64_t iteration) {
    for (const int rank : {0, 1, 2, 3}) REQUIRE(Push(rank, iteration, 1, 1).ok());
    if (clips) Agree(iteration, 1);
  };
  for (const int rank : {0, 1, 2, 3}) REQUIRE(Push(rank, 0, 1).ok());
  agree(0);
  REQUIRE(Applied() == Nearly(1));
  for (uint64_t iteration = 1; iteration < 50; ++iteration) {
    const float before = Applied();
    for (const int rank : {2, 3, 0, 1}) REQUIRE(Push(rank, iteration, rank == 3 ? kHuge : 1).ok());
    agree(iteration);
    CHECK(Applied() - before == Nearly(1.25));  // of 1, 1, 1 and 2
  }
  CHECK(LimitedByRank() == std::vector<uint64_t>{0, 0, 0, 49});
  CHECK(Stats().limited_pushes() == 49);
}

TEST_CASE_METHOD(Fixture, "the log names who was limited, in few lines") {
  Start(3, {kTwice});
  const CapturedLog log;
  PushAll(0, {1, 1, 1});
  for (uint64_t iteration = 1; iteration < 100; ++iteration) PushAll(iteration, {1, 1, kHuge});
  const std::string text = log.text();
  INFO(text);
  CHECK_THAT(text, Catch::Contains(
                       "the gradient of fc/weight (chunk 0) of worker 2 at iteration 1 has norm "
                       "4.19e+06 and is scaled down to 8, update.max_norm (2) times the median of "
                       "the workers' (so far of this worker: 1)"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 7);  // the 1st, 2nd, 4th ... 64th
}

TEST_CASE_METHOD(Fixture, "without max_norm nothing is limited, and no means are kept") {
  Start(4);
  PushAll(0, {1, 1, 1, 1});
  CHECK(PushAll(1, {1, 1, 1, kHuge}) > kHuge / 8);
  CHECK(Stats().limited_pushes() == 0);
  StoredChunk& chunk = store->chunks()[0];
  absl::MutexLock lock(&chunk.mutex);
  CHECK(chunk.clock().norms.empty());
}

TEST_CASE_METHOD(Fixture, "SYNC's bound does not depend on the order of an iteration's pushes") {
  Start(3, {kTwice});
  PushAll(0, {1, 1, 1});
  // The first ones do not raise the bound of the last one.
  CHECK(PushAll(1, {kHuge, kHuge, kHuge}) == Nearly(2));
  CHECK(LimitedByRank() == std::vector<uint64_t>{1, 1, 1});
}

TEST_CASE_METHOD(Fixture, "the bound follows gradients that all workers have") {
  Start(4, {kTwice});
  PushAll(0, {1, 1, 1, 1});
  // Means of 4 get norms of 8, and become 4.25.
  CHECK(PushAll(1, {64, 64, 64, 64}) == Nearly(2));
  CHECK(PushAll(2, {64, 64, 64, 64}) == Nearly(2.125));
  uint64_t iteration = 3;
  while (PushAll(iteration, {64, 64, 64, 64}) < 63.9) REQUIRE(++iteration < 80);
  const uint64_t limited = Stats().limited_pushes();
  // Smaller ones are never limited.
  for (float value = 64; value > 1; value /= 2) PushAll(++iteration, {value, value, value, value});
  CHECK(Stats().limited_pushes() == limited);
}

TEST_CASE_METHOD(Fixture, "up to half of the workers cannot raise the bound") {
  const int liars = GENERATE(1, 2);
  Start(4, {kTwice});
  std::vector<float> values(4, 1);
  PushAll(0, values);
  for (int rank = 0; rank < liars; ++rank) values[rank] = kHuge;
  for (uint64_t iteration = 1; iteration < 100; ++iteration) {
    CHECK(PushAll(iteration, values) == Nearly(1 + liars / 4.0f));
  }
}

TEST_CASE_METHOD(Fixture, "less than half of the workers cannot lower the bound") {
  Start(4, {kTwice});
  PushAll(0, {1, 1, 1, 1});
  for (uint64_t iteration = 1; iteration < 100; ++iteration) {
    PushAll(iteration, {1, 1, 1, 1 / kHuge});
  }
  CHECK(PushAll(100, {2, 2, 2, 2}) == Nearly(2));
  CHECK(Stats().limited_pushes() == 0);
}

TEST_CASE_METHOD(Fixture, "a worker that is alone is bounded by its own past") {
  Start(1, {kTwice});
  CHECK(PushAll(0, {1}) == Nearly(1));
  CHECK(PushAll(1, {kHuge}) == Nearly(2));      // 8 in place of 4
  CHECK(PushAll(2, {kHuge}) == Nearly(2.125));  // the mean is 4.25
  CHECK(LimitedByRank() == std::vector<uint64_t>{2});
}

TEST_CASE_METHOD(Fixture, "ASYNC and SSP bound nothing until more than half have a mean") {
  Start(4, {GENERATE("update.policy=ASYNC", "update={policy: SSP staleness: 10}"), kTwice});
  uint64_t next[4] = {};
  const auto applies = [&](int rank, float value) {
    const float before = Applied();
    REQUIRE(Push(rank, next[rank]++, value).ok());
    return Applied() - before;
  };
  CHECK(applies(3, 64) == Nearly(64));
  CHECK(applies(3, 4096) == Nearly(4096));
  CHECK(applies(0, 1) == Nearly(1));
  CHECK(applies(3, 4096) == Nearly(4096));  // two of four
  CHECK(applies(1, 1) == Nearly(1));
  CHECK(applies(3, 4096) == Nearly(2));
  // However often it pushes, it has one mean.
  for (int i = 0; i < 5; ++i) CHECK(applies(3, kHuge) == Nearly(2));
  CHECK(applies(2, kHuge) == Nearly(2));  // of one that has no mean yet, too
  CHECK(LimitedByRank() == std::vector<uint64_t>{0, 0, 1, 6});
}

TEST_CASE_METHOD(Fixture, "gradients of zeros hold back no later ones") {
  Start(3, {kTwice});
  for (uint64_t iteration = 0; iteration < 5; ++iteration) {
    CHECK(PushAll(iteration, {0, 0, 0}) == Nearly(0));
  }
  CHECK(PushAll(5, {1, 1, 1}) == Nearly(1));
  // A mean is none of zeros.
  for (uint64_t iteration = 6; iteration < 50; ++iteration) PushAll(iteration, {0, 0, 1});
  CHECK(PushAll(50, {2, 2, 2}) == Nearly(2));
  CHECK(Stats().limited_pushes() == 0);
}

TEST_CASE_METHOD(Fixture, "a gradient is measured by what it counts for") {
  Start(1, {"update.policy=ASYNC", kTwice});
  CHECK(PushAll(0, {1}) == Nearly(1));
  weight = 4;
  CHECK(PushAll(1, {4}) == Nearly(1));
  CHECK(PushAll(2, {4 * kHuge}) == Nearly(2));
  weight = 1 / kHuge;
  CHECK(PushAll(3, {1}) == Nearly(2.125));
  CHECK(LimitedByRank() == std::vector<uint64_t>{2});
}

TEST_CASE_METHOD(Fixture, "a repeat of a push is neither measured nor counted again") {
  Start(2, {"update.policy=ASYNC", kTwice});
  PushAll(0, {1, 1});
  for (int i = 0; i < 3; ++i) REQUIRE(Push(0, 1, kHuge).ok());
  CHECK(LimitedByRank() == std::vector<uint64_t>{1, 0});
}

TEST_CASE_METHOD(Fixture, "only the workers that take part have a say") {
  Start(3, {kTwice});
  Adopt({{0, {0, 1, 2}}});
  CHECK(PushAll(0, {1, 64, 64}) == Nearly(43));  // of all three the median is 256
  Adopt({{0, {0, 1, 2}}, {1, {0}}});
  CHECK(PushAll(1, {kHuge}) == Nearly(2));
}

TEST_CASE_METHOD(Fixture, "under ASYNC workers that have left have none") {
  Start(3, {"update.policy=ASYNC", kTwice});
  Adopt({{0, {0, 1, 2}}});
  PushAll(0, {1, 64, 64});
  Adopt({{0, {0, 1, 2}}}, {.left = {1, 2}});
  const float before = Applied();
  REQUIRE(Push(0, 1, kHuge).ok());
  CHECK(Applied() - before == Nearly(2));
}

TEST_CASE_METHOD(Fixture, "QUORUM limits the gradients that count, and measures no others") {
  Start(3, {"update={policy: QUORUM quorum: 2}", kTwice});
  const auto push = [&](uint64_t iteration, const std::vector<float>& values) {
    for (int rank = 0; rank < 3; ++rank) {
      for (const int index : {0, 1}) REQUIRE(Push(rank, iteration, values[rank], index).ok());
    }
  };
  push(0, {1, 1, kHuge});
  Fix(0, {0, 1});
  CHECK(Applied() == Nearly(1));
  push(1, {1, kHuge, kHuge});
  Fix(1, {0, 1});
  CHECK(Applied() == Nearly(2.5));
  CHECK(LimitedByRank() == std::vector<uint64_t>{0, 2, 0});  // of two chunks
}

TEST_CASE_METHOD(Fixture, "what is assigned is not limited") {
  from_workers = true;
  Start(1, {"update.policy=ASYNC", kTwice});
  PushAll(0, {kHuge});
  CHECK(Parameter(0) == kHuge);
  CHECK(PushAll(1, {1}) == Nearly(1));
  CHECK(PushAll(2, {kHuge}) == Nearly(2));  // the mean is that of gradients
}

TEST_CASE_METHOD(Fixture, "observers are told of a gradient as it was applied") {
  Start(1, {"update.policy=ASYNC", kTwice});
  PushAll(0, {1});
  weight = 4;
  PushAll(1, {4 * kHuge});
  const ChunkChange& change = observer.changes.back();
  CHECK(change.encoding == FLOAT32);
  REQUIRE(SegmentsSize(change.gradient) == 16 * sizeof(float));
  float first = 0;
  std::memcpy(&first, change.gradient[0].data(), sizeof(first));
  CHECK(first * change.scale == 2);
}

TEST_CASE_METHOD(Fixture, "gradients that all differ a little are left alone, bit by bit") {
  const std::string policy = GENERATE("update.policy=SYNC", "update.policy=ASYNC");
  const auto train = [&](const std::string& max_norm) {
    Fixture run;
    run.Start(4, {policy, max_norm});
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (uint64_t iteration = 0; iteration < 30; ++iteration) {
      std::vector<float> values(4);
      for (float& value : values) value = std::exp(normal(random) / 4);
      run.PushAll(iteration, values);
    }
    CHECK(run.Stats().limited_pushes() == 0);
    return run.Parameter(0);
  };
  CHECK(train("update.max_norm=10") == train("update.max_norm=0"));
}

TEST_CASE_METHOD(Fixture, "a gradient of every encoding is limited to the bound") {
  const auto encoding = GENERATE(FLOAT32, FLOAT16, BFLOAT16, INT8, INT4, E3M0);
  Start(1, {kTwice});
  NormLimit limit(*config, store.get());
  StoredChunk& chunk = store->chunks()[0];
  std::vector<float> values;
  for (int i = 0; i < 16; ++i) values.push_back(static_cast<float>(i - 8) * 100);
  std::string bytes(EncodedBytes(encoding, 16), '\0');
  Encode(encoding, values, bytes.data());
  const auto all = [](uint32_t) { return true; };
  Gradient gradient{.header = {.encoding = encoding}, .data = {bytes}, .owner = nullptr};
  limit.Measure(chunk.info(), *sessions[0], &gradient);
  CHECK(*gradient.norm == Approx(1800).epsilon(0.3));
  absl::MutexLock lock(&chunk.mutex);
  NormLimit::Note(0, 10, &chunk.mutable_clock());
  CHECK(limit.Limit(chunk, all, &gradient) == 20);
  CHECK(gradient.header.encoding == FLOAT32);
  std::vector<float> limited(16);
  Decode(FLOAT32, gradient.data, absl::MakeSpan(limited));
  double squared = 0;
  for (const float value : limited) squared += static_cast<double>(value) * value;
  CHECK(std::sqrt(squared) == Approx(20));
  CHECK(limited[0] < 0);
  CHECK(limited[8] == 0);
}

TEST_CASE_METHOD(Fixture, "what is limited of shared memory is what was measured") {
  Start(1, {kTwice});
  NormLimit limit(*config, store.get());
  const auto buffers = std::make_shared<WorkerBuffers>();
  WorkerSession session(0, 1, buffers, &activities[0], &clock);
  std::vector<float> memory(16, 1);
  const absl::Span<const char> bytes(reinterpret_cast<const char*>(memory.data()), 64);
  Gradient gradient{.header = {.encoding = FLOAT32}, .data = {bytes}, .owner = buffers};
  StoredChunk& chunk = store->chunks()[0];
  limit.Measure(chunk.info(), session, &gradient);
  memory.assign(16, kHuge);  // between the push and its use
  const auto seen = [&gradient] {
    std::vector<float> values(16);
    Decode(FLOAT32, gradient.data, absl::MakeSpan(values));
    return values;
  };
  absl::MutexLock lock(&chunk.mutex);
  NormLimit::Note(0, 2, &chunk.mutable_clock());
  CHECK(limit.Limit(
            chunk, [](uint32_t) { return true; }, &gradient) == 4);
  CHECK(seen() == std::vector<float>(16, 1));
  // The same of one that is small enough.
  memory.assign(16, 0.5);
  gradient = {.header = {.encoding = FLOAT32}, .data = {bytes}, .owner = buffers};
  CHECK(limit.Limit(
            chunk, [](uint32_t) { return true; }, &gradient) == 2);
  memory.assign(16, kHuge);
  CHECK(seen() == std::vector<float>(16, 0.5));
}

TEST_CASE_METHOD(Fixture, "a gradient that is not finite is left as it is, and changes no mean") {
  Start(1, {kTwice});
  NormLimit limit(*config, store.get());
  StoredChunk& chunk = store->chunks()[0];
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(16, value);
    const absl::Span<const char> bytes(reinterpret_cast<const char*>(values.data()), 64);
    Gradient gradient{.header = {.encoding = FLOAT32}, .data = {bytes}, .owner = nullptr};
    limit.Measure(chunk.info(), *sessions[0], &gradient);
    absl::MutexLock lock(&chunk.mutex);
    NormLimit::Note(0, 10, &chunk.mutable_clock());
    CHECK(limit.Limit(
              chunk, [](uint32_t) { return true; }, &gradient) == 0);
    CHECK(gradient.data[0].data() == bytes.data());
  }
}

}  // namespace evenshard
