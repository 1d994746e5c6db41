#include "worker/exchange/shard_control.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/channel_options.h"
#include "common/net/pull.h"
#include "common/net/status_conversion.h"
#include "grpcpp/client_context.h"
#include "spdlog/spdlog.h"

namespace ps {
namespace {

// A wait for a shard that takes longer than this is worth a line in the log.
constexpr absl::Duration kQuietWait = absl::Seconds(3);
// How often a wait for a shard to be up checks whether a stop is requested.
constexpr absl::Duration kStopPeriod = absl::Milliseconds(100);
// The pause before another attempt to join a shard whose refusal is temporary.
constexpr absl::Duration kJoinPause = absl::Seconds(1);

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
      channel_(CreateChannel(options.address, options.config->proto().limits())),
      stub_(ParameterServer::NewStub(channel_)) {}

std::string ShardControl::name() const {
  return absl::StrCat("shard ", options_.shard, " (", options_.address, ")");
}

absl::Status ShardControl::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(name(), ": ", status.message()));
}

absl::Status ShardControl::AwaitUp(absl::Time deadline) {
  const Clock& clock = *options_.clock;
  const absl::Time quiet = clock.Now() + kQuietWait;
  bool logged = false;
  while (!channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kStopPeriod))) {
    if (options_.stop.stop_requested()) return Named(absl::CancelledError("told to stop"));
    if (clock.Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          name(), " was not up within ", options_.config->proto().limits().startup_seconds(),
          " s (limits.startup_seconds)"));
    }
    if (logged || clock.Now() < quiet) continue;
    spdlog::info("waiting for {}", name());
    logged = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<JoinResponse> ShardControl::Join(const SharedBuffers* buffers, absl::Time deadline) {
  const Config& config = *options_.config;
  const Clock& clock = *options_.clock;
  JoinRequest request;
  request.set_worker(options_.rank);
  request.set_incarnation(options_.incarnation);
  request.set_config_fingerprint(config.fingerprint());
  request.set_plan_fingerprint(config.plan().fingerprint());
  request.set_plan_version(kPlanVersion);
  *request.mutable_config() = config.Contract();
  for (const Encoding encoding : {FLOAT32, FLOAT16, BFLOAT16}) request.add_encodings(encoding);
  if (buffers != nullptr) *request.mutable_shared_buffers() = *buffers;

  join_called_ = true;
  JoinResponse response;
  while (true) {
    CallContext call(options_.stop, deadline - clock.Now());
    call.context.set_wait_for_ready(true);
    const grpc::Status status = stub_->Join(&call.context, request, &response);
    if (status.ok()) break;
    // UNAVAILABLE is a temporary refusal: see Membership::Join.
    const bool again =
        status.error_code() == grpc::StatusCode::UNAVAILABLE && clock.Now() + kJoinPause < deadline;
    const absl::Status refused = Named(FromGrpc(status));
    if (!again) return refused;
    spdlog::info("{}; trying again", std::string(refused.message()));
    if (!clock.SleepUntil(clock.Now() + kJoinPause, options_.stop)) {
      return Named(absl::CancelledError("told to stop"));
    }
  }
  if (response.shard() != static_cast<uint32_t>(options_.shard)) {
    return absl::FailedPreconditionError(absl::StrCat(
        name(), " says that it is shard ", response.shard(), ": the addresses are mixed up"));
  }
  if (response.shared_buffers() && buffers == nullptr) {
    return Named(absl::InternalError("it shares buffers that it was not offered"));
  }
  return response;
}

absl::Status ShardControl::Pull(
    const std::function<absl::Status(const Chunk& chunk, const ParameterChunk& message)>& take) {
  const Config& config = *options_.config;
  CallContext call(options_.stop, absl::Seconds(config.proto().limits().exchange_seconds()));
  return Named(PullShard(stub_.get(), &call.context, config.plan(), options_.shard, take));
}

absl::Status ShardControl::Report(const WorkerUsage& usage, const std::stop_token& stop) {
  ReportRequest request;
  request.set_worker(options_.rank);
  request.set_incarnation(options_.incarnation);
  *request.mutable_usage() = usage;
  CallContext call(stop, kTimeout);
  ReportResponse response;
  return Named(FromGrpc(stub_->Report(&call.context, request, &response)));
}

absl::Status ShardControl::Leave(const absl::Status& outcome, bool before_start,
                                 absl::Duration timeout) {
  if (!join_called_) return absl::OkStatus();
  LeaveRequest request;
  request.set_worker(options_.rank);
  request.set_incarnation(options_.incarnation);
  request.set_error(std::string(outcome.message()));
  request.set_before_start(before_start);
  CallContext call(std::stop_token(), timeout);
  LeaveResponse response;
  const grpc::Status status = stub_->Leave(&call.context, request, &response);
  has_left_ = status.ok();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat(name(), " has not answered Leave for ", absl::FormatDuration(timeout)));
  }
  return Named(FromGrpc(status));
}

}  // namespace ps
