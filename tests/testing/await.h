#ifndef EVENSHARD_TESTS_TESTING_AWAIT_H_
#define EVENSHARD_TESTS_TESTING_AWAIT_H_

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace evenshard {

// Polls until the condition holds. The test fails after 60 s.
template <typename Condition>
void AwaitTrue(Condition condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!condition()) {
    REQUIRE(absl::Now() < deadline);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_AWAIT_H_
