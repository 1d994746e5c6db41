#ifndef EVENSHARD_TESTS_TESTING_AWAIT_H_
#define EVENSHARD_TESTS_TESTING_AWAIT_H_

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/patience.h"

namespace evenshard {

// Polls until the condition holds. The test fails after kPatience.
template <typename Condition>
void AwaitTrue(Condition condition) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!condition()) {
    REQUIRE(absl::Now() < deadline);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_AWAIT_H_
