#include "worker/ring/grpc/ring_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/placement/declaration.h"
#include "common/security/rights.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/exchange_metadata.h"
#include "common/wire/metadata_number.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How often a wait looks whether the round has failed or a stop is requested.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(50);

}  // namespace

size_t RingService::streams() const {
  return 2 * static_cast<size_t>(options_.config->proto().limits().connections());
}

absl::Status RingService::AwaitPredecessor(absl::Duration timeout, const std::stop_token& stop) {
  const auto is_there = [this]()
                            ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return opened_ == streams(); };
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

absl::Status RingService::CheckJoin(const RingJoinRequest& join) const {
  const PlannedConfig& config = *options_.config;
  const auto differs = [&](absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " has another ", what, " than worker ",
                     options_.rank, ", allowed: the same config and --set in all workers"));
  };
  if (join.protocol_version() != kProtocolVersion || join.plan_version() != kRingPlanVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " speaks version ", join.protocol_version(), ".",
                     join.plan_version(), ", and worker ", options_.rank, " ", kProtocolVersion,
                     ".", kRingPlanVersion, ", allowed: the same build everywhere"));
  }
  const std::string other = DeclarationDifference(config.declaration(), join.declaration());
  if (!other.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " brings something else than worker ", options_.rank,
                     ": in worker ", options_.rank, " ", Printable(other),
                     ", allowed: the same in all workers"));
  }
  if (join.config_fingerprint() != config.fingerprint()) return differs("config");
  if (join.plan_fingerprint() != options_.plan->fingerprint()) return differs("plan");
  if (join.successor() != static_cast<uint32_t>(options_.rank) ||
      join.worker() != static_cast<uint32_t>(options_.predecessor)) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " looked for worker ", join.successor(),
                     " here, and this is ", "worker ", options_.rank, ", to which worker ",
                     options_.predecessor, " passes on: the addresses in `ring` are mixed up"));
  }
  if (join.generation() != options_.generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " is in generation ", join.generation(),
                     " of the run, and worker ", options_.rank, " in ", options_.generation));
  }
  if (join.incarnation() == 0) return absl::InvalidArgumentError("the incarnation is 0");
  return absl::OkStatus();
}

absl::StatusOr<RingJoinResponse> RingService::TakeUp(const RingJoinRequest& join) {
  RETURN_IF_ERROR(CheckJoin(join));
  RETURN_IF_ERROR(options_.round->failure());
  absl::MutexLock lock(&mutex_);
  if (is_ended_) return absl::FailedPreconditionError("the worker has ended");
  if (incarnation_ != 0 && incarnation_ != join.incarnation() && opened_ > 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", options_.predecessor, " has joined already, from another process"));
  }
  incarnation_ = join.incarnation();
  return RingJoinResponse();
}

UnaryReactor* RingService::Join(CallContext* context, const MessageBytes* request,
                                MessageBytes* response) {
  const std::string peer = Printable(context->peer());
  return AnswerUnary<RingJoinRequest, RingJoinResponse>(
      context, *request, response,
      [&](const RingJoinRequest& join) -> absl::StatusOr<RingJoinResponse> {
        RETURN_IF_ERROR(CheckWorker(*context, join.worker()));
        absl::StatusOr<RingJoinResponse> joined = TakeUp(join);
        if (joined.ok()) return joined;
        const std::string refusal = Printable(joined.status().message());
        spdlog::warn("refused worker {} from {}: {}", join.worker(), peer, refusal);
        absl::MutexLock lock(&mutex_);
        refusal_ = absl::StrCat("worker ", join.worker(), " was refused: ", refusal);
        return joined;
      });
}

absl::Status RingService::CheckWorker(const CallContext& context, uint32_t worker) const {
  return CheckCaller(context, options_.config->proto().security(),
                     {.role = Role::kWorker, .index = static_cast<int>(worker)});
}

absl::Status RingService::CheckJoined(uint32_t worker, uint64_t incarnation) const {
  if (worker == static_cast<uint32_t>(options_.predecessor) && incarnation == incarnation_ &&
      incarnation != 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", worker, " has not joined worker ", options_.rank));
}

UnaryReactor* RingService::Fail(CallContext* context, const MessageBytes* request,
                                MessageBytes* response) {
  return AnswerUnary<RingFailure, RingFailureResponse>(
      context, *request, response,
      [&](const RingFailure& failure) -> absl::StatusOr<RingFailureResponse> {
        RETURN_IF_ERROR(CheckWorker(*context, failure.worker()));
        {
          absl::MutexLock lock(&mutex_);
          RETURN_IF_ERROR(CheckJoined(failure.worker(), failure.incarnation()));
        }
        const auto code = static_cast<absl::StatusCode>(failure.code());
        options_.on_news(
            absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                         Printable(failure.reason())));
        return RingFailureResponse();
      });
}

UnaryReactor* RingService::Ask(CallContext* context, const MessageBytes* request,
                               MessageBytes* response) {
  return AnswerUnary<RingAskRequest, RingState>(
      context, *request, response, [&](const RingAskRequest&) -> absl::StatusOr<RingState> {
        RingState state;
        state.set_worker(options_.rank);
        state.set_iteration(options_.round->iteration());
        state.set_waits(options_.round->waits());
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
          RETURN_IF_ERROR(CheckJoined(note.worker(), note.incarnation()));
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
  if (refused.ok()) refused = CheckJoined(*worker, *incarnation);
  if (refused.ok() && is_ended_) refused = ended_.ok() ? absl::AbortedError("it ends") : ended_;
  if (refused.ok() && opened_ == streams()) {
    refused = absl::ResourceExhaustedError(
        absl::StrCat("worker ", options_.predecessor, " has opened its streams already"));
  }
  if (!refused.ok()) return new Refused<BidiReactor>(refused);
  ++opened_;
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
    has_finished = was_closed && !is_ended_ && ++closed_ == streams();
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
