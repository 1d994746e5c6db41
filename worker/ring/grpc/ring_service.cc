#include "worker/ring/grpc/ring_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/security/refusal_log.h"
#include "common/security/rights.h"
#include "common/wire/exchange_metadata.h"
#include "common/wire/metadata_number.h"

namespace evenshard {
namespace {

// How often a wait looks whether the round has failed or a stop is requested.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(50);

}  // namespace

absl::Status RingService::AwaitPredecessor(absl::Duration timeout, const std::stop_token& stop) {
  const auto is_there = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return predecessor_.has_opened_all();
  };
  absl::MutexLock lock(&mutex_);
  for (absl::Duration waited; !is_there(); waited += kLookPeriod) {
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    RETURN_IF_ERROR(options_.round->failure());
    if (waited >= timeout) {
      return absl::DeadlineExceededError(absl::StrCat(
          "worker ", options_.predecessor, ", which passes on to this one, has not joined in ",
          absl::FormatDuration(timeout), " (limits.startup_seconds)"));
    }
    mutex_.AwaitWithTimeout(absl::Condition(&is_there), kLookPeriod);
  }
  return absl::OkStatus();
}

absl::Status RingService::TakeUp(const RingJoinRequest& join) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(predecessor_.CheckJoin(join));
  RETURN_IF_ERROR(options_.round->failure());
  if (is_ended_) return absl::FailedPreconditionError("the worker has ended");
  return predecessor_.TakeUp(join.incarnation());
}

UnaryReactor* RingService::Join(CallContext* context, const MessageBytes* request,
                                MessageBytes* response) {
  const std::string peer = Printable(context->peer());
  return AnswerUnary<RingJoinRequest, RingJoinResponse>(
      context, *request, response,
      [&](const RingJoinRequest& join) -> absl::StatusOr<RingJoinResponse> {
        RETURN_IF_ERROR(CheckWorker(*context, join.worker()));
        const absl::Status joined = TakeUp(join);
        if (joined.ok()) return RingJoinResponse();
        const std::string refusal = Printable(joined.message());
        LogRefusal(absl::StrCat("worker ", join.worker(), " from ", peer, ": ", refusal));
        absl::MutexLock lock(&mutex_);
        refusal_ = absl::StrCat("worker ", join.worker(), " was refused: ", refusal);
        return joined;
      });
}

absl::Status RingService::CheckWorker(const CallContext& context, uint32_t worker) const {
  return CheckCaller(context, options_.config->proto().security(),
                     {.role = Role::kWorker, .index = static_cast<int>(worker)});
}

UnaryReactor* RingService::Fail(CallContext* context, const MessageBytes* request,
                                MessageBytes* response) {
  return AnswerUnary<RingFailure, RingFailureResponse>(
      context, *request, response,
      [&](const RingFailure& failure) -> absl::StatusOr<RingFailureResponse> {
        RETURN_IF_ERROR(CheckWorker(*context, failure.worker()));
        {
          absl::MutexLock lock(&mutex_);
          RETURN_IF_ERROR(predecessor_.Check(failure.worker(), failure.incarnation()));
        }
        options_.on_news(NewsOf(failure));
        return RingFailureResponse();
      });
}

UnaryReactor* RingService::Ask(CallContext* context, const MessageBytes* request,
                               MessageBytes* response) {
  return AnswerUnary<RingAskRequest, RingState>(
      context, *request, response, [&](const RingAskRequest&) -> absl::StatusOr<RingState> {
        RingState state;
        state.set_worker(options_.rank);
        state.set_iteration(options_.round->trained());
        state.set_waits(options_.waits());
        return state;
      });
}

UnaryReactor* RingService::Tell(CallContext* context, const MessageBytes* request,
                                MessageBytes* response) {
  return AnswerUnary<RingNote, RingNoteResponse>(
      context, *request, response, [&](const RingNote& note) -> absl::StatusOr<RingNoteResponse> {
        RETURN_IF_ERROR(CheckWorker(*context, note.worker()));
        {
          absl::MutexLock lock(&mutex_);
          RETURN_IF_ERROR(predecessor_.Check(note.worker(), note.incarnation()));
        }
        RETURN_IF_ERROR(options_.on_note(note));
        return RingNoteResponse();
      });
}

UnaryReactor* RingService::GetStats(CallContext* context, const MessageBytes* request,
                                    MessageBytes* response) {
  return AnswerUnary<RingStatsRequest, RingStats>(
      context, *request, response, [&](const RingStatsRequest&) { return options_.stats(); });
}

BidiReactor* RingService::Open(CallContext* context, RingWay way) {
  const absl::StatusOr<uint32_t> worker = MetadataNumber<uint32_t>(*context, kWorkerMetadata);
  const absl::StatusOr<uint64_t> incarnation =
      MetadataNumber<uint64_t>(*context, kIncarnationMetadata);
  absl::Status refused = worker.status();
  refused.Update(incarnation.status());
  if (refused.ok()) refused = CheckWorker(*context, *worker);
  absl::MutexLock lock(&mutex_);
  if (refused.ok()) refused = predecessor_.Check(*worker, *incarnation);
  if (refused.ok() && is_ended_) refused = ended_.ok() ? absl::AbortedError("it ends") : ended_;
  if (refused.ok()) refused = predecessor_.Open();
  if (!refused.ok()) return new Refused<BidiReactor>(refused);
  const std::shared_ptr<RingReceiver> receiver = RingReceiver::Create(
      {.way = way,
       .held_bytes = static_cast<size_t>(options_.config->proto().limits().held_bytes()),
       .round = options_.round,
       .on_failure = options_.on_failure,
       .on_done = [this](RingReceiver* done, bool was_closed) { Done(done, was_closed); }});
  receivers_.insert(receiver);
  return receiver.get();
}

void RingService::Done(RingReceiver* receiver, bool was_closed) {
  std::shared_ptr<RingReceiver> done;  // destroyed without the lock
  bool is_lost = false;
  bool has_finished = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = std::find_if(receivers_.begin(), receivers_.end(),
                                    [&](const auto& each) { return each.get() == receiver; });
    if (found != receivers_.end()) {
      done = *found;
      receivers_.erase(found);
    }
    is_lost = !was_closed && !is_ended_;
    has_finished = was_closed && !is_ended_ && predecessor_.Close();
  }
  if (is_lost) options_.on_lost();
  if (has_finished) options_.on_finished();
}

void RingService::EndStreams(const absl::Status& status) {
  std::vector<std::shared_ptr<RingReceiver>> receivers;
  {
    absl::MutexLock lock(&mutex_);
    is_ended_ = true;
    ended_ = status;
    receivers.assign(receivers_.begin(), receivers_.end());
  }
  for (const std::shared_ptr<RingReceiver>& receiver : receivers) receiver->End(status);
}

}  // namespace evenshard
