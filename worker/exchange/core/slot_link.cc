#include "worker/exchange/core/slot_link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
constexpr absl::Duration kAttemptLimit = absl::Seconds(5);

// After which part of recovery.silence_seconds a worker says that it cannot reach a slot. The
// coordinator waits for silence_seconds from then on.
constexpr double kQuiet = 0.25;

}  // namespace

SlotPatience SlotPatience::Of(const ClusterConfig& config, bool has_views,
                              absl::Duration exchange) {
  return {.has_views = has_views,
          .startup = absl::Seconds(config.limits().startup_seconds()),
          .reconnect = absl::Seconds(config.limits().reconnect_seconds()),
          .exchange = exchange,
          .quiet = kQuiet * absl::Seconds(config.recovery().silence_seconds())};
}

bool IsPassing(const absl::Status& status, bool has_joined) {
  if (KindOf(status) == ErrorDetail::RUN_FAILED) return false;
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
      return true;
    case absl::StatusCode::kResourceExhausted:
      return !has_joined;
    default:
      return false;
  }
}

SlotLink::SlotLink(int slot, const SlotPatience* patience) : slot_(slot), patience_(*patience) {}

std::string SlotLink::name() const { return absl::StrCat("shard ", slot_, " (", address(), ")"); }

void SlotLink::MoveTo(const ProcessId& primary) {
  primary_ = primary;
  is_somewhere_ = true;
  missed_since_ = absl::InfiniteFuture();
  ForgetPause();
}

void SlotLink::MoveNowhere() {
  is_somewhere_ = false;
  missed_since_ = absl::InfiniteFuture();
  ForgetPause();
}

bool SlotLink::IsAt(const ProcessId& primary) const {
  return is_somewhere_ && primary.process() == primary_.process() &&
         primary.incarnation() == primary_.incarnation() && primary.address() == address();
}

uint64_t SlotLink::Begin(absl::Time at, absl::Time now) {
  is_connected_ = false;
  is_attempting_ = true;
  attempt_begun_ = at;
  missed_since_ = std::min(missed_since_, now);
  return ++attempt_;
}

absl::Status SlotLink::Accept(const JoinResponse& response, absl::Time now) {
  if (history_.value_or(response.history()) != response.history()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name(), ": the shard was started anew without its state"));
  }
  if (has_joined_) {
    spdlog::info("{}: connected again after {}", name(),
                 absl::FormatDuration(absl::Trunc(now - missed_since_, absl::Milliseconds(1))));
  }
  is_attempting_ = false;
  is_connected_ = has_joined_ = true;
  missed_since_ = absl::InfiniteFuture();
  reason_ = absl::OkStatus();
  history_ = response.history();
  start_iteration_ = response.start_iteration();
  assignments_ = {.all = response.assignments(), .recent = response.recent_assignments()};
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> SlotLink::Break(const absl::Status& status, bool answered) {
  const bool is_silent = status.ok() || absl::IsCancelled(status);
  const absl::Status reason =
      is_silent ? absl::UnavailableError("it ended the exchange without a reason") : status;
  const std::string what = absl::StrCat(name(), ": ", reason.message());
  if (!IsPassing(status, has_joined_) || (has_joined_ && !patience_.reconnects())) {
    return Reworded(reason, what);
  }
  if (is_connected_) {
    lost_ = reason;
    spdlog::warn("{}; connecting again", what);
  } else if (reason_ != reason) {
    spdlog::info("{}; trying again", what);
  }
  reason_ = reason;
  if (answered) ForgetPause();
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  return pause_;
}

bool SlotLink::Drop(absl::Time now) {
  if (!is_attempting_ && !is_connected_) return false;
  missed_since_ = std::min(missed_since_, now);
  is_attempting_ = is_connected_ = false;
  ++attempt_;  // later events of the old one do not count
  return true;
}

void SlotLink::Forget() {
  MoveNowhere();
  has_joined_ = false;
  lost_ = reason_ = absl::OkStatus();
  history_.reset();
  start_iteration_ = 0;
  assignments_ = {};
}

bool SlotLink::IsUnreachable(absl::Time now) const {
  return patience_.has_views && is_somewhere_ && !is_connected_ &&
         now >= missed_since_ + patience_.quiet;
}

absl::Status SlotLink::Check(absl::Time now) const {
  if (is_connected_ || missed_since_ == absl::InfiniteFuture()) return absl::OkStatus();
  const absl::Duration missed = now - missed_since_;
  const std::string why = reason_.ok() ? "" : absl::StrCat(": ", std::string(reason_.message()));
  if (patience_.has_views) {
    if (missed < patience_.exchange) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(name(), " could not be reached for ",
                                                    absl::FormatDuration(patience_.exchange),
                                                    " (limits.exchange_seconds)", why));
  }
  if (!has_joined_) {
    if (missed < patience_.startup) return absl::OkStatus();
    if (!reason_.ok()) return Reworded(reason_, absl::StrCat(name(), why));
    return absl::DeadlineExceededError(absl::StrCat(
        name(), " was not up within ", absl::ToDoubleSeconds(patience_.startup),
        " s (limits.startup_seconds); start it with `ps --config=FILE --shard=", slot_, "`"));
  }
  if (missed < patience_.reconnect) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(name(), ": ", std::string(lost_.message()), "; it was not there again within ",
                   absl::ToDoubleSeconds(patience_.reconnect), " s (limits.reconnect_seconds)",
                   reason_ == lost_ ? "" : why));
}

bool SlotLink::IsStale(absl::Time now) const {
  return (patience_.has_views || has_joined_) && is_attempting_ &&
         now - attempt_begun_ >= kAttemptLimit;
}

}  // namespace evenshard
