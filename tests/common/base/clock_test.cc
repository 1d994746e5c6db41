#include "common/base/clock.h"

#include <catch2/catch.hpp>
#include <thread>

namespace evenshard {

TEST_CASE("sleeping ends at its deadline, and at once where that has passed") {
  const RealClock clock;
  const absl::Time deadline = clock.Now() + absl::Milliseconds(5);
  CHECK(clock.SleepUntil(deadline, {}));
  CHECK(clock.Now() >= deadline);
  CHECK(clock.SleepUntil(deadline, {}));
  CHECK(clock.SleepUntil(absl::InfinitePast(), {}));
}

TEST_CASE("a stop ends an endless sleep") {
  const RealClock clock;
  std::stop_source stop;
  bool slept = true;
  std::thread sleeper([&] { slept = clock.SleepUntil(absl::InfiniteFuture(), stop.get_token()); });
  stop.request_stop();
  sleeper.join();
  CHECK_FALSE(slept);
  CHECK_FALSE(clock.SleepUntil(clock.Now() + absl::Hours(1), stop.get_token()));
}

}  // namespace evenshard
