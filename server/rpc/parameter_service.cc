#include "server/rpc/parameter_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/security/refusal_log.h"
#include "common/security/rights.h"
#include "common/wire/exchange_metadata.h"
#include "common/wire/metadata_number.h"
#include "spdlog/spdlog.h"

namespace evenshard {

namespace {

// How many Pulls of workers are permitted besides one for each, since all workers pull at the start
// of a run, and one of a host that is lost ends late.
constexpr int kMore = 8;

}  // namespace

ParameterService::ParameterService(const Options& options)
    : options_(options),
      attendance_(options.config->workers()),
      pulls_({.name = "Pull",
              .limit = static_cast<size_t>(options.config->workers() + kMore),
              .limit_means = absl::StrCat(": one for each worker and ", kMore, " more"),
              .patience = absl::Seconds(options.config->proto().limits().exchange_seconds()),
              .clock = options.clock}),
      // Pulls of others and Snapshots, which may wait for the training, must not keep workers from
      // their Pulls.
      readers_({.name = "Pull",
                .limit = static_cast<size_t>(options.config->proto().limits().strangers().pulls()),
                .limit_means = " that are not a worker's",
                .patience = absl::Seconds(options.config->proto().limits().exchange_seconds()),
                .clock = options.clock}),
      snapshots_(
          {.name = "Snapshot",
           .limit = static_cast<size_t>(options.config->proto().limits().strangers().snapshots()),
           .patience = absl::Seconds(options.config->proto().limits().exchange_seconds()),
           .clock = options.clock}),
      states_({.name = "ReceiveWorkerState",
               .limit = static_cast<size_t>(options.config->workers() * options.config->shards()),
               .patience = absl::Seconds(options.config->proto().limits().exchange_seconds()),
               .clock = options.clock}),
      state_relay_(static_cast<size_t>(options.config->workers() * options.config->shards())),
      push_threads_(ChunkOrderOf(options.config->proto().exchange())) {}

void ParameterService::Serve(Shard& shard) {
  shard.OnEnd([this, ended = &shard](const absl::Status& reason) {
    if (ended->has_failed()) {
      // A worker that has given up says why by itself.
      const bool is_said = absl::IsAborted(reason) && KindOf(reason) != ErrorDetail::RUN_FAILED;
      spdlog::log(is_said ? spdlog::level::info : spdlog::level::err, "the run has failed: {}",
                  std::string(reason.message()));
    }
    EndStreams(ended, reason);
  });
}

absl::StatusOr<std::shared_ptr<Shard>> ParameterService::Find(std::optional<uint32_t> slot) const {
  const int wanted = static_cast<int>(slot.value_or(options_.process));
  if (std::shared_ptr<Shard> shard = options_.host->Primary(wanted); shard != nullptr) return shard;
  return absl::UnavailableError(absl::StrCat("ps ", options_.process, " is not primary of slot ",
                                             wanted, " in view ", options_.host->view().number()));
}

absl::Status ParameterService::CheckWorker(const CallContext& context, uint32_t worker) const {
  return CheckCaller(context, options_.config->proto().security(),
                     {.role = Role::kWorker, .index = static_cast<int>(worker)});
}

void ParameterService::EndStreams(const absl::Status& status) {
  for (const auto& stream : Streams()) stream->End(status);
  push_threads_.End();
}

void ParameterService::EndStreams(const Shard* shard, const absl::Status& status) {
  for (const auto& stream : Streams()) {
    if (stream->shard() == shard) stream->End(status);
  }
}

UnaryReactor* ParameterService::Join(CallContext* context, const MessageBytes* request,
                                     MessageBytes* response) {
  const std::string peer = Printable(context->peer());
  return AnswerUnary<JoinRequest, JoinResponse>(
      context, *request, response, [&](const JoinRequest& join) -> absl::StatusOr<JoinResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, join));
        absl::StatusOr<JoinResponse> joined = shard->Join(join, peer);
        if (joined.ok()) {
          for (const auto& stream : Streams()) {
            if (stream->worker() == join.worker() && stream->shard() == shard.get()) stream->Open();
          }
          attendance_.Joined(SlotOf(join).value_or(options_.process), join.worker(), peer);
        } else {
          LogRefusal(absl::StrCat("worker ", join.worker(), " from ", peer, ": ",
                                  Printable(joined.status().message())));
        }
        return joined;
      });
}

UnaryReactor* ParameterService::Leave(CallContext* context, const MessageBytes* request,
                                      MessageBytes* response) {
  return AnswerUnary<LeaveRequest, LeaveResponse>(
      context, *request, response, [&](const LeaveRequest& leave) -> absl::StatusOr<LeaveResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, leave));
        RETURN_IF_ERROR(shard->Leave(leave));
        attendance_.Left(SlotOf(leave).value_or(options_.process), leave.worker(),
                         Printable(leave.error()));
        return LeaveResponse();
      });
}

UnaryReactor* ParameterService::Report(CallContext* context, const MessageBytes* request,
                                       MessageBytes* response) {
  return AnswerUnary<ReportRequest, ReportResponse>(
      context, *request, response,
      [&](const ReportRequest& report) -> absl::StatusOr<ReportResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, report));
        RETURN_IF_ERROR(shard->Report(report));
        return ReportResponse();
      });
}

UnaryReactor* ParameterService::Mean(CallContext* context, const MessageBytes* request,
                                     MessageBytes* response) {
  return AnswerUnary<MeanRequest, MeanResponse>(
      context, *request, response, [&](const MeanRequest& mean) -> absl::StatusOr<MeanResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, mean));
        return shard->Mean(mean);
      });
}

UnaryReactor* ParameterService::KeepState(CallContext* context, const MessageBytes* request,
                                          MessageBytes* response) {
  return AnswerUnary<KeepStateRequest, KeepStateResponse>(
      context, *request, response,
      [&](const KeepStateRequest& keep) -> absl::StatusOr<KeepStateResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, keep));
        RETURN_IF_ERROR(shard->KeepState(keep));
        return KeepStateResponse();
      });
}

UnaryReactor* ParameterService::TakeState(CallContext* context, const MessageBytes* request,
                                          MessageBytes* response) {
  return AnswerUnary<TakeStateRequest, TakeStateResponse>(
      context, *request, response,
      [&](const TakeStateRequest& take) -> absl::StatusOr<TakeStateResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, take));
        return shard->TakeState(take);
      });
}

UnaryReactor* ParameterService::AskWorkerState(CallContext* context, const MessageBytes* request,
                                               MessageBytes* response) {
  return AnswerUnary<AskWorkerStateRequest, AskWorkerStateResponse>(
      context, *request, response,
      [&](const AskWorkerStateRequest& ask) -> absl::StatusOr<AskWorkerStateResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, ask));
        return shard->AskWorkerState(ask);
      });
}

UnaryReactor* ParameterService::OfferWorkerState(CallContext* context, const MessageBytes* request,
                                                 MessageBytes* response) {
  return AnswerUnary<OfferWorkerStateRequest, OfferWorkerStateResponse>(
      context, *request, response,
      [&](const OfferWorkerStateRequest& offer) -> absl::StatusOr<OfferWorkerStateResponse> {
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, offer));
        return shard->OfferWorkerState(offer);
      });
}

ReadReactor* ParameterService::SendWorkerState(CallContext* context, MessageBytes* response) {
  const auto transfer = TransferOf(*context);
  if (!transfer.ok()) return new Refused<ReadReactor>(transfer.status());
  return state_relay_.Send(transfer->slot, transfer->ticket, response);
}

WriteReactor* ParameterService::ReceiveWorkerState(CallContext* context,
                                                   const MessageBytes* request) {
  return PullStream::Start(
      context, &states_,
      [&](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<ChunkSource>> {
        ASSIGN_OR_RETURN(const ReceiveWorkerStateRequest receive,
                         ParseMessage<ReceiveWorkerStateRequest>(*request));
        ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardFor(*context, receive));
        RETURN_IF_ERROR(shard->CheckReceivesState(receive.worker(), receive.incarnation()));
        return state_relay_.Receive(shard->index(), receive.ticket(), std::move(wake));
      });
}

absl::StatusOr<ParameterService::StateTransfer> ParameterService::TransferOf(
    const CallContext& context) const {
  ASSIGN_OR_RETURN(const uint32_t worker, MetadataNumber<uint32_t>(context, kWorkerMetadata));
  RETURN_IF_ERROR(CheckWorker(context, worker));
  ASSIGN_OR_RETURN(const std::optional<uint32_t> slot, SlotIn(context));
  ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, Find(slot));
  ASSIGN_OR_RETURN(const uint64_t incarnation,
                   MetadataNumber<uint64_t>(context, kIncarnationMetadata));
  RETURN_IF_ERROR(shard->CheckSendsState(worker, incarnation));
  ASSIGN_OR_RETURN(const uint64_t ticket, MetadataNumber<uint64_t>(context, kTicketMetadata));
  return StateTransfer{.slot = shard->index(), .ticket = ticket};
}

absl::StatusOr<std::optional<uint32_t>> ParameterService::SlotIn(const CallContext& context) {
  if (context.client_metadata().count(kSlotMetadata) == 0) return std::nullopt;
  ASSIGN_OR_RETURN(const uint32_t slot, MetadataNumber<uint32_t>(context, kSlotMetadata));
  return slot;
}

BidiReactor* ParameterService::Exchange(CallContext* context) {
  const absl::StatusOr<ExchangeStream::Options> options = OptionsOf(*context);
  if (!options.ok()) return new Refused<BidiReactor>(options.status());
  // gRPC does not call OnDone before this method has returned the reactor.
  const std::shared_ptr<ExchangeStream> stream = ExchangeStream::Create(*options);
  {
    absl::MutexLock lock(&mutex_);
    streams_.insert(stream);
  }
  // Opened after it has been inserted: either this finds the Join, or a Join that comes at the same
  // time finds the stream.
  stream->Open();
  return stream.get();
}

absl::StatusOr<ExchangeStream::Options> ParameterService::OptionsOf(const CallContext& context) {
  ExchangeStream::Options options;
  ASSIGN_OR_RETURN(options.worker, MetadataNumber<uint32_t>(context, kWorkerMetadata));
  RETURN_IF_ERROR(CheckWorker(context, options.worker));
  ASSIGN_OR_RETURN(const std::optional<uint32_t> slot, SlotIn(context));
  ASSIGN_OR_RETURN(options.shard, Find(slot));
  ASSIGN_OR_RETURN(options.incarnation, MetadataNumber<uint64_t>(context, kIncarnationMetadata));
  ASSIGN_OR_RETURN(const uint32_t join_follows,
                   MetadataNumber<uint32_t>(context, kJoinFollowsMetadata, /*absent=*/0));
  // A stream may wait for its Join only while fewer than twice a slot's streams of all workers are
  // open here.
  const uint64_t most =
      uint64_t{2} * options_.config->workers() * options_.config->proto().limits().connections();
  {
    absl::MutexLock lock(&mutex_);
    options.join_follows = join_follows != 0 && streams_.size() < most;
  }
  options.push_threads = &push_threads_;
  options.opened = options_.clock->Now();
  options.on_done = [this](ExchangeStream* done) {
    absl::MutexLock lock(&mutex_);
    streams_.erase(done->shared_from_this());
  };
  return options;
}

void ParameterService::EndWaitingStreams() {
  const Limits& limits = options_.config->proto().limits();
  // A worker gives up its attempt to join after this time.
  const absl::Time since = options_.clock->Now() - absl::Seconds(limits.startup_seconds());
  for (const auto& stream : Streams()) stream->EndWaiting(since);
}

std::vector<std::shared_ptr<ExchangeStream>> ParameterService::Streams() {
  absl::MutexLock lock(&mutex_);
  return {streams_.begin(), streams_.end()};
}

WriteReactor* ParameterService::Pull(CallContext* context, const MessageBytes* request) {
  const absl::StatusOr<PullRequest> pull = ParseMessage<PullRequest>(*request);
  absl::Status allowed = pull.status();
  // Only workers say that they are one.
  const bool is_worker = pull.ok() && pull->has_worker();
  if (is_worker) allowed = CheckWorker(*context, pull->worker());
  return PullStream::Start(
      context, is_worker && allowed.ok() ? &pulls_ : &readers_,
      [&](const std::function<void()>&) -> absl::StatusOr<std::unique_ptr<ChunkSource>> {
        RETURN_IF_ERROR(allowed);
        ASSIGN_OR_RETURN(std::shared_ptr<Shard> shard, Find(SlotOf(*pull)));
        return PullSource(std::move(shard), *pull);
      });
}

WriteReactor* ParameterService::Snapshot(CallContext* context, const MessageBytes* request) {
  return PullStream::Start(
      context, &snapshots_,
      [&](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<ChunkSource>> {
        ASSIGN_OR_RETURN(const SnapshotRequest snapshot, ParseMessage<SnapshotRequest>(*request));
        ASSIGN_OR_RETURN(std::shared_ptr<Shard> shard, Find(SlotOf(snapshot)));
        return SnapshotSource(std::move(shard), snapshot, std::move(wake));
      });
}

}  // namespace evenshard
