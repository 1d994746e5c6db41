#include "server/parameter_service.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "common/exchange_metadata.h"
#include "common/text.h"
#include "server/unary_call.h"
#include "spdlog/spdlog.h"

namespace ps {

namespace {

// A number from the call's metadata; 0, which is no incarnation, where there is none.
uint64_t MetadataNumber(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  uint64_t number = 0;
  if (found == context.client_metadata().end()) return number;
  const absl::string_view text(found->second.data(), found->second.size());
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

}  // namespace

ParameterService::ParameterService(Shard* shard, const Clock* clock)
    : shard_(shard),
      pulls_(shard->config().workers(),
             absl::Seconds(shard->config().proto().limits().exchange_seconds()), clock),
      push_workers_(ChunkOrderOf(shard->config().proto().exchange())) {
  shard->OnFailure([this](const absl::Status& failure) {
    spdlog::error("the run has failed: {}", std::string(failure.message()));
    EndStreams(failure);
  });
}

void ParameterService::EndStreams(const absl::Status& status) {
  std::set<std::shared_ptr<ExchangeStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) stream->End(status);
}

grpc::ServerUnaryReactor* ParameterService::Join(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  const std::string peer = Printable(context->peer());
  return AnswerUnary<JoinRequest, JoinResponse>(
      context, *request, response, [&](const JoinRequest& join) {
        absl::StatusOr<JoinResponse> joined = shard_->Join(join, peer);
        if (joined.ok()) {
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
        if (absl::Status refused = shard_->Leave(leave); !refused.ok()) return refused;
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
        if (absl::Status refused = shard_->Report(report); !refused.ok()) return refused;
        return ReportResponse();
      });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ParameterService::Exchange(
    grpc::CallbackServerContext* context) {
  // The first read cannot complete, nor OnDone come, before this has returned the reactor.
  std::shared_ptr<ExchangeStream> stream = ExchangeStream::Start(
      shard_, &push_workers_, MetadataNumber(*context, kWorkerMetadata),
      MetadataNumber(*context, kIncarnationMetadata), [this](ExchangeStream* done) {
        absl::MutexLock lock(&mutex_);
        streams_.erase(done->shared_from_this());
      });
  absl::MutexLock lock(&mutex_);
  return streams_.insert(std::move(stream)).first->get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new PullStream(context, shard_, &pulls_, *request);
}

}  // namespace ps
