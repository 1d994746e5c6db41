#include "common/base/pending_count.h"

#include <catch2/catch.hpp>
#include <thread>

namespace evenshard {

// Linked with a time of day that is behind the kernel's, as where somebody sets the clock.

TEST_CASE("a wait returns at once if nothing is pending") {
  PendingCount count;
  count.AwaitZero();
  CHECK(count.AwaitZeroFor(absl::ZeroDuration()));
}

TEST_CASE("a wait lasts until everything is removed, or until its timeout") {
  PendingCount count;
  count.Add();
  count.Add();
  CHECK_FALSE(count.AwaitZeroFor(absl::Milliseconds(1)));
  std::thread other([&] {
    count.Remove();
    count.Remove();
  });
  CHECK(count.AwaitZeroFor(absl::Hours(1)));
  count.AwaitZero();
  other.join();
}

}  // namespace evenshard
