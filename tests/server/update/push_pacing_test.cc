#include "server/update/push_pacing.h"

#include <catch2/catch.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

constexpr int64_t kLead = 100;

struct Fixture {
  // All workers push `count` times 10 bytes, one push of each a millisecond.
  void PushInStep(int count) {
    for (int i = 0; i < count; ++i) {
      clock.Advance(absl::Milliseconds(1));
      for (int worker = 0; worker < 3; ++worker) pacing.Pushed(worker, 10);
    }
  }

  FakeClock clock;
  PushPacing pacing{3, kLead, &clock};
};

TEST_CASE_METHOD(Fixture, "a worker waits while it is further ahead of the slowest than allowed") {
  PushInStep(20);
  pacing.Pushed(1, 500);
  pacing.Pushed(2, kLead);
  CHECK(pacing.Wait(2) == absl::ZeroDuration());
  pacing.Pushed(2, 1);
  CHECK(pacing.Wait(2) > absl::ZeroDuration());
  CHECK(pacing.Wait(2) <= absl::Milliseconds(2));
  CHECK(pacing.Wait(0) == absl::ZeroDuration());
  pacing.Pushed(0, 1);
  CHECK(pacing.Wait(2) == absl::ZeroDuration());
  CHECK(pacing.Wait(1) > absl::ZeroDuration());
}

TEST_CASE_METHOD(Fixture, "nobody waits for a worker that does not move") {
  PushInStep(20);
  pacing.Pushed(2, kLead + 1);
  absl::Duration waited;
  for (int asked = 0; asked < 10; ++asked) {
    const absl::Duration wait = pacing.Wait(2);
    waited += wait;
    clock.Advance(wait);
  }
  CHECK(waited >= absl::Milliseconds(2));
  CHECK(waited <= absl::Milliseconds(8));
  CHECK(pacing.Wait(2) == absl::ZeroDuration());

  // It moves again, after a long while that is not taken for its pace.
  clock.Advance(absl::Seconds(10));
  pacing.Pushed(0, 1);
  pacing.Pushed(1, 2 + kLead);
  CHECK(pacing.Wait(1) > absl::ZeroDuration());
  CHECK(pacing.Wait(1) <= absl::Milliseconds(4));
}

TEST_CASE_METHOD(Fixture, "the pace follows the slowest worker, even if it gets slower") {
  PushInStep(20);
  for (int i = 0; i < 100; ++i) {
    clock.Advance(absl::Milliseconds(40));
    for (int worker = 0; worker < 3; ++worker) pacing.Pushed(worker, 10);
  }
  pacing.Pushed(2, kLead + 1);
  clock.Advance(absl::Milliseconds(100));
  CHECK(pacing.Wait(2) > absl::ZeroDuration());
}

TEST_CASE_METHOD(Fixture, "who counts no more is waited for by nobody, and the others begin anew") {
  PushInStep(20);
  for (const int worker : {0, 1}) pacing.Pushed(worker, 500);
  CHECK(pacing.Wait(0) > absl::ZeroDuration());  // worker 2 is behind
  pacing.Restart({10, 0, std::nullopt});
  CHECK(pacing.Wait(0) == absl::ZeroDuration());
  pacing.Pushed(0, kLead);
  CHECK(pacing.Wait(0) > absl::ZeroDuration());  // now it is worker 1
  pacing.Pushed(1, 10);
  CHECK(pacing.Wait(0) == absl::ZeroDuration());
}

TEST_CASE("a single worker never waits") {
  FakeClock clock;
  PushPacing pacing(1, 0, &clock);
  for (int i = 0; i < 10; ++i) {
    pacing.Pushed(0, 1000);
    CHECK(pacing.Wait(0) == absl::ZeroDuration());
  }
}

TEST_CASE("the slowest worker is known however pushes of several threads interleave") {
  constexpr int kWorkers = 4;
  constexpr int kPushes = 20000;
  FakeClock clock;
  PushPacing pacing(kWorkers, kLead, &clock);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    for (int stream = 0; stream < 2; ++stream) {
      threads.emplace_back([&pacing, worker] {
        for (int i = 0; i < kPushes; ++i) pacing.Pushed(worker, 1);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  pacing.Pushed(1, kLead);
  CHECK(pacing.Wait(1) == absl::ZeroDuration());
  pacing.Pushed(1, 1);
  CHECK(pacing.Wait(1) > absl::ZeroDuration());
}

}  // namespace
}  // namespace evenshard
