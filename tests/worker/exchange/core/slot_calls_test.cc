#include "worker/exchange/core/slot_calls.h"

#include <catch2/catch.hpp>
#include <optional>

#include "tests/testing/fake_clock.h"

namespace evenshard {

using Again = absl::StatusOr<std::optional<absl::Time>>;

TEST_CASE("a pull is made again while the slot moves, until its limit") {
  FakeClock clock;
  SlotPull pull(&clock, absl::Seconds(3));
  const absl::Status gone = absl::UnavailableError("Socket closed");
  const Again again = pull.Ended(gone);
  REQUIRE(again.ok());
  CHECK(*again == clock.Now() + absl::Milliseconds(100));
  CHECK(pull.Ended(absl::ResourceExhaustedError("too many")) ==
        Again(clock.Now() + absl::Milliseconds(100)));
  CHECK(pull.Ended(absl::OkStatus()) == Again(std::nullopt));
  CHECK(pull.Ended(absl::DataLossError("bad")).status() == absl::DataLossError("bad"));
  clock.Advance(absl::Seconds(3));
  CHECK(pull.Ended(gone).status() == gone);
}

TEST_CASE("without time to reconnect a pull is made once") {
  FakeClock clock;
  SlotPull pull(&clock, absl::ZeroDuration());
  CHECK(absl::IsUnavailable(pull.Ended(absl::UnavailableError("gone")).status()));
}

TEST_CASE("a Leave is told again while the slot cannot be reached, if the worker has finished") {
  FakeClock clock;
  const absl::Status gone = absl::UnavailableError("gone");
  CHECK(SlotLeave(&clock, /*tries_again=*/false, absl::Seconds(5)).Ended(gone).status() == gone);
  SlotLeave leave(&clock, /*tries_again=*/true, absl::Seconds(5));
  const absl::Status unknown = absl::FailedPreconditionError("rank 1 is not held");
  CHECK(leave.Ended(unknown).status() == unknown);
  CHECK(leave.Ended(absl::DeadlineExceededError("late")).status() ==
        absl::DeadlineExceededError("late"));
  const Again again = leave.Ended(gone);
  REQUIRE(again.ok());
  CHECK(*again == clock.Now() + absl::Milliseconds(50));
  // The answer may have been lost, and the slot has forgotten the worker.
  CHECK(leave.Ended(unknown) == Again(std::nullopt));
  CHECK(leave.Ended(absl::OkStatus()) == Again(std::nullopt));
  clock.Advance(absl::Seconds(5));
  CHECK(leave.left() == absl::ZeroDuration());
  CHECK(leave.Ended(gone).status() == gone);
}

}  // namespace evenshard
