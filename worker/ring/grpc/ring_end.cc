// How a run in a ring ends, for RingExchange.
//
// With an error:
//   1. A worker notices it: its own, a neighbour that is lost, or one that sends nothing for too
//      long. It fails its round, so that the training thread returns.
//   2. Spread tells the successor by the call Fail, and the predecessor by the status with which
//      its streams end.
//   3. Both do the same. A worker that has failed already ignores the news, so they meet and stop.
//
// Without one, Leave closes the streams to the successor, which ends them when it has received
// everything. Then it ends its predecessor's, from which it needs nothing any more.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error_kind.h"
#include "common/base/text.h"
#include "common/net/channel_options.h"
#include "common/net/status_conversion.h"
#include "grpcpp/client_context.h"
#include "spdlog/spdlog.h"
#include "worker/ring/grpc/ring_exchange.h"

namespace evenshard {
namespace {

// How long a neighbour may take to hear why the run ends.
constexpr absl::Duration kTellTimeout = absl::Seconds(2);
// How long one may take to say what it does; longer, because it is blamed if it does not.
constexpr absl::Duration kAskTimeout = absl::Seconds(5);
// How much longer than limits.exchange_seconds a worker waits for the news of the one that is the
// successor of the worker at fault: that one has waited for about as long, and asks for
// kAskTimeout.
constexpr absl::Duration kBlameTime = absl::Seconds(15);

std::chrono::system_clock::time_point After(absl::Duration timeout) {
  return absl::ToChronoTime(absl::Now() + timeout);
}

}  // namespace

void RingExchange::SenderEnded(const absl::Status& status) {
  if (status.ok()) successor_finished_ = true;  // it has everything
  if (status.ok() || is_closing_) return;
  if (KindOf(status) == ErrorDetail::RUN_FAILED) {
    Fail(status);
  } else {
    Lost(successor_, status.message());
  }
}

void RingExchange::Lost(int rank, absl::string_view what) {
  Fail(absl::UnavailableError(
      absl::StrCat(NameOf(rank), " was lost: ", what, " (noticed by worker ", options_.rank, ")")));
}

void RingExchange::Fail(const absl::Status& status) {
  if (is_closing_) return;
  if (round_->Fail(WithKind(ErrorDetail::RUN_FAILED, status))) Spread(status);
}

RingFailure RingExchange::FailureMessage(const absl::Status& status) const {
  RingFailure failure;
  failure.set_worker(options_.rank);
  failure.set_incarnation(incarnation_);
  failure.set_code(static_cast<int>(status.code()));
  failure.set_reason(Printable(status.message()));
  failure.set_differing_state(DifferingStateOf(status));
  return failure;
}

void RingExchange::Spread(const absl::Status& failure) {
  if (is_spread_.exchange(true)) return;
  service_->EndStreams(WithKind(ErrorDetail::RUN_FAILED, failure));
  if (!has_joined_) return;
  struct Call {
    grpc::ClientContext context;
    RingFailure request;
    RingFailureResponse response;
  };
  auto call = std::make_shared<Call>();
  call->context.set_deadline(After(kTellTimeout));
  call->request = FailureMessage(failure);
  telling_.Add();
  stub_->async()->Fail(&call->context, &call->request, &call->response,
                       [this, call](const grpc::Status&) mutable {
                         call.reset();  // and its channel, before the exchange may end
                         telling_.Remove();
                       });
}

void RingExchange::SpreadFailure() {
  const absl::Status failure = round_->failure();
  if (failure.ok() || (absl::IsCancelled(failure) && options_.stop.stop_requested())) return;
  Spread(failure);
}

void RingExchange::Watch(const std::stop_token& stop) {
  const Clock& clock = *options_.clock;
  while (clock.SleepUntil(clock.Now() + round_->watch_period(), stop)) {
    CheckTold();
    CheckOthers().IgnoreError();
    const std::optional<Stall> stall = round_->CheckProgress(clock.Now());
    const bool stands = stall.has_value() && !stall->missing.empty();
    if (!notes_.awaits()) {
      absl::MutexLock lock(&mutex_);
      stall_ = stands ? stall : std::nullopt;
    }
    if (stall.has_value()) options_.on_stall(*stall);
    if (stands && stall->lasted >= round_->limit()) Blame(*stall);
  }
}

void RingExchange::Blame(const Stall& stall) {
  const bool only_sends = round_->only_sends();
  const int neighbour = only_sends ? successor_ : predecessor_;
  grpc::ClientContext context;
  context.set_deadline(After(kAskTimeout));
  RingState state;
  const absl::Status asked = FromGrpc(
      Ring::NewStub(CreateChannel(config_.proto().ring().address(neighbour), config_.proto(),
                                  {.role = Role::kWorker, .index = neighbour}))
          ->Ask(&context, RingAskRequest(), &state));
  if (asked.ok() && state.waits() && stall.lasted < round_->limit() + kBlameTime) return;
  const std::string does =
      !asked.ok() ? "does not answer"
      : state.waits()
          ? "waits too"
          : absl::StrCat("is at iteration ", state.iteration(),
                         only_sends ? " and takes nothing" : " and has not pushed all of it");
  Fail(absl::DeadlineExceededError(
      absl::StrCat("iteration ", stall.iteration, ": ", stall.missing, " for ",
                   absl::FormatDuration(round_->limit()), " (limits.exchange_seconds); ",
                   NameOf(neighbour), " ", does, " (noticed by worker ", options_.rank, ")")));
}

absl::Status RingExchange::SendLeave(const absl::Status& outcome, absl::Duration timeout) {
  if (outcome.ok() || !has_joined_) return absl::OkStatus();
  grpc::ClientContext context;
  context.set_deadline(After(timeout));
  RingFailureResponse response;
  return FromGrpc(stub_->Fail(&context, FailureMessage(GivenUp(outcome)), &response));
}

absl::Status RingExchange::GivenUp(const absl::Status& why) const {
  return absl::AbortedError(
      absl::StrCat("worker ", options_.rank, " has given up: ", why.message()));
}

absl::Status RingExchange::CloseStreams() {
  if (const absl::Status all = AwaitAll(); !all.ok()) return all;
  telling_.AwaitZero();  // the successor has to pass notes on
  is_closing_ = true;
  for (const auto& sender : senders_) sender->Close();
  const absl::Time deadline = absl::Now() + round_->limit();
  for (const auto& sender : senders_) {
    if (sender->AwaitEnded(std::max(deadline - absl::Now(), absl::ZeroDuration()))) continue;
    return absl::DeadlineExceededError(absl::StrCat(NameOf(successor_),
                                                    " has not taken the last messages for ",
                                                    absl::FormatDuration(round_->limit())));
  }
  return absl::OkStatus();
}

absl::Status RingExchange::Leave(const absl::Status& outcome) {
  leave_called_ = true;
  const absl::Status closed = outcome.ok() ? CloseStreams() : outcome;
  if (!closed.ok()) {
    SpreadFailure();  // another thread may have set it, and may not have come to that
    const absl::Status reason = GivenUp(closed);
    Fail(reason);
    Spread(reason);  // if the round was told to stop, its failure does not say why
    telling_.AwaitZero();
    is_closing_ = true;
  }
  watcher_ = {};
  round_->EndHeld();
  if (held_.joinable()) held_.join();
  // Receivers wake senders, so they end first.
  service_->EndStreams(absl::OkStatus());
  if (listener_ != nullptr) listener_->Shutdown(absl::Now() + kTellTimeout);
  listening_ = nullptr;
  listener_.reset();
  senders_.clear();
  telling_.AwaitZero();  // what came from others meanwhile
  if (!lent_.AwaitAll(kTellTimeout)) {
    spdlog::error("gRPC still holds memory {} after its connections were closed",
                  absl::FormatDuration(kTellTimeout));
  }
  return outcome.ok() ? closed : absl::OkStatus();
}

}  // namespace evenshard
