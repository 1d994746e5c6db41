#include "worker/exchange/grpc/shard_control.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/channel_options.h"
#include "common/net/introduction.h"
#include "common/net/pull.h"
#include "common/net/status_conversion.h"
#include "common/net/stoppable_call.h"
#include "common/security/refusal_log.h"
#include "common/wire/exchange_metadata.h"
#include "grpcpp/client_context.h"
#include "proto/admin.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// A wait for a shard that takes longer than this is worth a line in the log.
constexpr absl::Duration kQuietWait = absl::Seconds(3);
// How long the question why it waits may take.
constexpr absl::Duration kProbeTime = absl::Seconds(1);
// How often a wait checks whether a stop is requested.
constexpr absl::Duration kStopPeriod = absl::Milliseconds(50);

// The context of a blocking call, which ends after `timeout` and once `stop` is requested. gRPC
// measures the timeout by the monotonic clock from here on.
struct CallContext {
  CallContext(const std::stop_token& stop, absl::Duration timeout)
      : on_stop(stop, [this] { context.TryCancel(); }) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }

  grpc::ClientContext context;
  const std::stop_callback<std::function<void()>> on_stop;
};

}  // namespace

ShardControl::ShardControl(const Options& options)
    : options_(options),
      channel_(CreateChannel(options.address, options.config->proto(), {.role = Role::kShard})),
      stub_(ParameterServer::NewStub(channel_)) {}

std::string ShardControl::name() const {
  return absl::StrCat("shard ", options_.slot, " (", options_.address, ")");
}

absl::Status ShardControl::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return Reworded(status, absl::StrCat(name(), ": ", status.message()));
}

std::string ShardControl::WhyNotUp() const {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kProbeTime));
  View view;
  const grpc::Status status = Admin::NewStub(channel_)->GetView(&context, GetViewRequest(), &view);
  return ExplainTls(Printable(status.error_message()));
}

absl::Status ShardControl::AwaitUp(const std::stop_token& stop) {
  const Clock& clock = *options_.clock;
  const absl::Time quiet = clock.Now() + kQuietWait;
  bool logged = false;
  while (!channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kStopPeriod))) {
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    if (logged || clock.Now() < quiet) continue;
    spdlog::info("waiting for {}: {}", name(), WhyNotUp());
    logged = true;
  }
  // A Join has the whole config, and the names of all tensors that workers bring.
  Introduce(channel_, kTimeout, [&stop] { return stop.stop_requested(); });
  return absl::OkStatus();
}

absl::StatusOr<JoinResponse> ShardControl::Join(const JoinRequest& request,
                                                const std::stop_token& stop) {
  join_view_ = request.view();
  join_called_ = true;
  grpc::ClientContext context;
  JoinResponse response;
  RETURN_IF_ERROR(FromGrpc(StoppableCall(
      &context,
      [&](std::function<void(grpc::Status)> done) {
        stub_->async()->Join(&context, &request, &response, std::move(done));
      },
      [&stop] { return stop.stop_requested(); })));
  if (!options_.names_slot && response.shard() != static_cast<uint32_t>(options_.slot)) {
    return absl::FailedPreconditionError(absl::StrCat("it says that it is shard ", response.shard(),
                                                      ": the addresses are mixed up"));
  }
  if (response.shared_buffers() && !request.has_shared_buffers()) {
    return absl::InternalError("it shares buffers that it was not offered");
  }
  return response;
}

absl::Status ShardControl::Pull(
    int array,
    const std::function<absl::Status(const Chunk& chunk, const ParameterChunk& message)>& take) {
  const PlannedConfig& config = *options_.config;
  CallContext call(options_.stop, absl::Seconds(config.proto().limits().exchange_seconds()));
  return Named(PullShard(stub_.get(), &call.context, config.plan(), options_.slot, take, array,
                         options_.rank));
}

absl::Status ShardControl::Report(const WorkerUsage& usage, const std::stop_token& stop) {
  ReportRequest request;
  Sign(&request);
  *request.mutable_usage() = usage;
  CallContext call(stop, kTimeout);
  ReportResponse response;
  return Named(FromGrpc(stub_->Report(&call.context, request, &response)));
}

absl::StatusOr<MeanResponse> ShardControl::Mean(MeanRequest request, absl::Duration timeout) {
  Sign(&request);
  CallContext call(options_.stop, timeout);
  MeanResponse response;
  RETURN_IF_ERROR(Named(FromGrpc(stub_->Mean(&call.context, request, &response))));
  return response;
}

absl::Status ShardControl::KeepState(KeepStateRequest request, absl::Duration timeout) {
  Sign(&request);
  CallContext call(options_.stop, timeout);
  KeepStateResponse response;
  return Named(FromGrpc(stub_->KeepState(&call.context, request, &response)));
}

absl::StatusOr<TakeStateResponse> ShardControl::TakeState(uint64_t iteration) {
  TakeStateRequest request;
  Sign(&request);
  request.set_iteration(iteration);
  CallContext call(options_.stop, kTimeout);
  TakeStateResponse response;
  RETURN_IF_ERROR(Named(FromGrpc(stub_->TakeState(&call.context, request, &response))));
  return response;
}

absl::StatusOr<AskWorkerStateResponse> ShardControl::AskWorkerState(uint64_t iteration,
                                                                    uint64_t ticket) {
  AskWorkerStateRequest request;
  Sign(&request);
  request.set_iteration(iteration);
  request.set_ticket(ticket);
  CallContext call(options_.stop, kTimeout);
  AskWorkerStateResponse response;
  RETURN_IF_ERROR(Named(FromGrpc(stub_->AskWorkerState(&call.context, request, &response))));
  return response;
}

absl::Status ShardControl::HasWorkerState(uint64_t ticket) {
  AskWorkerStateRequest request;
  Sign(&request);
  request.set_ticket(ticket);
  request.set_is_received(true);
  CallContext call(options_.stop, kTimeout);
  AskWorkerStateResponse response;
  return Named(FromGrpc(stub_->AskWorkerState(&call.context, request, &response)));
}

absl::StatusOr<OfferWorkerStateResponse> ShardControl::OfferWorkerState(
    OfferWorkerStateRequest request, absl::Duration timeout) {
  Sign(&request);
  CallContext call(options_.stop, timeout);
  OfferWorkerStateResponse response;
  RETURN_IF_ERROR(Named(FromGrpc(stub_->OfferWorkerState(&call.context, request, &response))));
  return response;
}

absl::Status ShardControl::SendWorkerState(uint64_t ticket,
                                           const std::function<bool(WorkerStatePiece* piece)>& next,
                                           const std::stop_token& stop) {
  const auto stub = ParameterServer::NewStub(
      CreateBulkChannel(options_.address, options_.config->proto(), {.role = Role::kShard}));
  CallContext call(stop, absl::InfiniteDuration());
  call.context.AddMetadata(kWorkerMetadata, absl::StrCat(options_.rank));
  call.context.AddMetadata(kIncarnationMetadata, absl::StrCat(options_.incarnation));
  call.context.AddMetadata(kTicketMetadata, absl::StrCat(ticket));
  if (options_.names_slot) call.context.AddMetadata(kSlotMetadata, absl::StrCat(options_.slot));
  SendWorkerStateResponse response;
  const auto writer = stub->SendWorkerState(&call.context, &response);
  // Until the shard knows who sends, it takes little (limits.strangers.asking_burst_bytes).
  writer->WaitForInitialMetadata();
  WorkerStatePiece piece;
  while (next(&piece) && writer->Write(piece)) {
  }
  writer->WritesDone();
  return Named(FromGrpc(writer->Finish()));
}

absl::Status ShardControl::ReceiveWorkerState(
    uint64_t ticket, const std::function<absl::Status(const WorkerStatePiece& piece)>& take,
    const std::stop_token& stop) {
  const auto stub = ParameterServer::NewStub(
      CreateBulkChannel(options_.address, options_.config->proto(), {.role = Role::kShard}));
  CallContext call(stop, absl::InfiniteDuration());
  ReceiveWorkerStateRequest request;
  Sign(&request);
  request.set_ticket(ticket);
  const auto reader = stub->ReceiveWorkerState(&call.context, request);
  absl::Status taken;
  for (WorkerStatePiece piece; taken.ok() && reader->Read(&piece);) taken = take(piece);
  if (!taken.ok()) call.context.TryCancel();
  const absl::Status finished = FromGrpc(reader->Finish());
  return Named(taken.ok() ? finished : taken);
}

absl::Status ShardControl::Leave(LeaveRequest message, SlotLeave call) {
  if (!join_called_) return absl::OkStatus();
  message.set_view(join_view_);
  if (options_.names_slot) message.set_slot(options_.slot);
  while (true) {
    CallContext context(std::stop_token(), call.left());
    LeaveResponse response;
    const absl::StatusOr<std::optional<absl::Time>> again =
        call.Ended(FromGrpc(stub_->Leave(&context.context, message, &response)));
    if (absl::IsDeadlineExceeded(again.status())) {
      return absl::DeadlineExceededError(absl::StrCat(name(), " has not answered Leave for ",
                                                      absl::FormatDuration(call.timeout())));
    }
    if (!again.ok()) return Named(again.status());
    has_left_ = !again->has_value();
    if (has_left_) return absl::OkStatus();
    options_.clock->SleepUntil(**again, std::stop_token());
  }
}

}  // namespace evenshard
