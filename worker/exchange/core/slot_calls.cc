#include "worker/exchange/core/slot_calls.h"

#include "worker/exchange/core/slot_link.h"

namespace evenshard {
namespace {

constexpr absl::Duration kPullPause = absl::Milliseconds(100);
constexpr absl::Duration kLeavePause = absl::Milliseconds(50);

}  // namespace

absl::StatusOr<std::optional<absl::Time>> SlotPull::Ended(const absl::Status& pulled) {
  if (pulled.ok()) return std::nullopt;
  const absl::Time now = clock_.Now();
  // A process that has two slots for a while may have too many pulls.
  const bool is_passing =
      IsPassing(pulled, /*has_joined=*/true) || absl::IsResourceExhausted(pulled);
  if (!is_passing || now >= deadline_) return pulled;
  return now + kPullPause;
}

absl::StatusOr<std::optional<absl::Time>> SlotLeave::Ended(const absl::Status& told) {
  if (told.ok() || (may_have_left_ && absl::IsFailedPrecondition(told))) return std::nullopt;
  const absl::Time again = clock_.Now() + kLeavePause;
  if (!absl::IsUnavailable(told) || !retries_ || again >= deadline_) return told;
  may_have_left_ = true;
  return again;
}

}  // namespace evenshard
