#include "server/shard/stall_log.h"

#include <catch2/catch.hpp>
#include <optional>

namespace evenshard {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

}  // namespace

TEST_CASE("a wait is logged after a while, and again whenever it has doubled") {
  StallLog log;
  std::vector<double> told;
  for (int second = 0; second <= 100; ++second) {
    const auto event = log.Observe(kStart, At(second));
    if (!event.has_value()) continue;
    CHECK_FALSE(event->over);
    told.push_back(absl::ToDoubleSeconds(event->waited));
  }
  CHECK(told == std::vector<double>{5, 10, 20, 40, 80});
}

TEST_CASE("the end of a wait is logged once, if the wait was") {
  const bool another_begins = GENERATE(false, true);
  StallLog log;
  REQUIRE(log.Observe(kStart, At(6)).has_value());
  const auto next = another_begins ? std::optional(At(16)) : std::nullopt;
  const auto over = log.Observe(next, At(17));
  REQUIRE(over.has_value());
  CHECK(over->over);
  CHECK(over->waited == absl::Seconds(17));
  CHECK_FALSE(log.Observe(next, At(18)).has_value());
  // The other wait is logged after its own five seconds.
  CHECK(log.Observe(At(16), At(21)).has_value());
}

TEST_CASE("short waits are not logged") {
  StallLog log;
  for (int second = 0; second < 100; ++second) {
    CHECK_FALSE(log.Observe(At(second - 1), At(second)).has_value());
    CHECK_FALSE(log.Observe(std::nullopt, At(second)).has_value());
  }
}

}  // namespace evenshard
