#include "tools/launch/restart_policy.h"

#include <catch2/catch.hpp>

namespace evenshard {

TEST_CASE("a process that dies is started again, later each time it fails early") {
  RestartPolicy policy;
  absl::Time now = absl::FromUnixSeconds(1000);
  absl::Duration wait = RestartPolicy::kFirstWait;
  for (int i = 1; i < RestartPolicy::kMostEarlyFailures; ++i) {
    policy.Started(now);
    now += absl::Seconds(1);
    CHECK(policy.Died(now) == now + wait);
    wait *= 2;
  }
  SECTION("and given up in the end") {
    policy.Started(now);
    CHECK(policy.Died(now + absl::Seconds(1)) == absl::InfiniteFuture());
    CHECK(policy.deaths() == RestartPolicy::kMostEarlyFailures);
  }
  SECTION("unless one lived for longer") {
    policy.Started(now);
    now += RestartPolicy::kEarly;
    CHECK(policy.Died(now) == now + RestartPolicy::kFirstWait);
    policy.Started(now);
    CHECK(policy.Died(now) == now + RestartPolicy::kFirstWait);
  }
}

}  // namespace evenshard
