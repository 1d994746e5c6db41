#include "server/parameter_service.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/wire/exchange_metadata.h"
#include "server/unary_call.h"
#include "spdlog/spdlog.h"

namespace ps {

namespace {

// Returns a number from the call's metadata, or 0, which is no incarnation, if there is none.
uint64_t MetadataNumber(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  uint64_t number = 0;
  if (found == context.client_metadata().end()) return number;
  const absl::string_view text(found->second.data(), found->second.size());
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

}  // namespace

ParameterService::ParameterService(Shard* shard)
    : shard_(shard),
      pulls_(shard->config().workers(),
             absl::Seconds(shard->config().proto().limits().exchange_seconds()), &shard->clock()),
      push_threads_(ChunkOrderOf(shard->config().proto().exchange())) {
  shard->OnFailure([this](const absl::Status& failure) {
    spdlog::error("the run has failed: {}", std::string(failure.message()));
    EndStreams(failure);
  });
}

void ParameterService::EndStreams(const absl::Status& status) {
  for (const auto& stream : Streams()) stream->End(status);
}

grpc::ServerUnaryReactor* ParameterService::Join(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  const std::string peer = Printable(context->peer());
  return AnswerUnary<JoinRequest, JoinResponse>(
      context, *request, response, [&](const JoinRequest& join) {
        absl::StatusOr<JoinResponse> joined = shard_->Join(join, peer);
        if (joined.ok()) {
          for (const auto& stream : Streams()) {
            if (stream->worker() == join.worker()) stream->Open();
          }
          spdlog::info("worker {} joined from {}", join.worker(), peer);
        } else {
          spdlog::warn("refused worker {} from {}: {}", join.worker(), peer,
                       Printable(joined.status().message()));
        }
        return joined;
      });
}

grpc::ServerUnaryReactor* ParameterService::Leave(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return AnswerUnary<LeaveRequest, LeaveResponse>(
      context, *request, response, [&](const LeaveRequest& leave) -> absl::StatusOr<LeaveResponse> {
        RETURN_IF_ERROR(shard_->Leave(leave));
        spdlog::info("worker {} left{}{}", leave.worker(), leave.error().empty() ? "" : ": ",
                     Printable(leave.error()));
        return LeaveResponse();
      });
}

grpc::ServerUnaryReactor* ParameterService::Report(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return AnswerUnary<ReportRequest, ReportResponse>(
      context, *request, response,
      [&](const ReportRequest& report) -> absl::StatusOr<ReportResponse> {
        RETURN_IF_ERROR(shard_->Report(report));
        return ReportResponse();
      });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ParameterService::Exchange(
    grpc::CallbackServerContext* context) {
  // A stream may wait for its Join only while fewer than twice the workers' streams are open.
  const uint64_t most =
      uint64_t{2} * shard_->config().workers() * shard_->config().proto().limits().connections();
  bool may_wait;
  {
    absl::MutexLock lock(&mutex_);
    may_wait = streams_.size() < most;
  }
  // gRPC does not call OnDone before this method has returned the reactor.
  const std::shared_ptr<ExchangeStream> stream = ExchangeStream::Create(
      {.shard = shard_,
       .push_threads = &push_threads_,
       .worker = static_cast<uint32_t>(MetadataNumber(*context, kWorkerMetadata)),
       .incarnation = MetadataNumber(*context, kIncarnationMetadata),
       .join_follows = may_wait && MetadataNumber(*context, kJoinFollowsMetadata) != 0,
       .opened = shard_->clock().Now(),
       .on_done = [this](ExchangeStream* done) {
         absl::MutexLock lock(&mutex_);
         streams_.erase(done->shared_from_this());
       }});
  {
    absl::MutexLock lock(&mutex_);
    streams_.insert(stream);
  }
  // Opened after it has been inserted: either this finds the Join, or a Join that comes at the same
  // time finds the stream.
  stream->Open();
  return stream.get();
}

void ParameterService::EndWaitingStreams() {
  const Limits& limits = shard_->config().proto().limits();
  // A worker gives up its attempt to join after this time.
  const absl::Time since = shard_->clock().Now() - absl::Seconds(limits.startup_seconds());
  for (const auto& stream : Streams()) stream->EndWaiting(since);
}

std::vector<std::shared_ptr<ExchangeStream>> ParameterService::Streams() {
  absl::MutexLock lock(&mutex_);
  return {streams_.begin(), streams_.end()};
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new PullStream(context, shard_, &pulls_, *request);
}

}  // namespace ps
