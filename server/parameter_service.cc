#include "server/parameter_service.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "common/exchange_metadata.h"
#include "common/status_conversion.h"
#include "server/pull_stream.h"
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

ParameterService::ParameterService(Shard* shard)
    : shard_(shard), push_workers_(ChunkOrderOf(shard->config().proto().exchange())) {
  shard->OnFailure([this](const absl::Status& failure) {
    spdlog::error("the run has failed: {}", std::string(failure.message()));
    EndStreams(failure);
  });
}

void ParameterService::EndStreams(const absl::Status& status) {
  for (const auto& stream : Streams()) stream->End(status);
}

grpc::ServerUnaryReactor* ParameterService::Join(grpc::CallbackServerContext* context,
                                                 const JoinRequest* request,
                                                 JoinResponse* response) {
  absl::StatusOr<JoinResponse> joined = shard_->Join(*request, context->peer());
  if (joined.ok()) {
    *response = *std::move(joined);
    for (const auto& stream : Streams()) {
      if (stream->worker() == request->worker()) stream->Open();
    }
    spdlog::info("worker {} joined from {}", request->worker(), context->peer());
  } else {
    spdlog::warn("refused worker {} from {}: {}", request->worker(), context->peer(),
                 std::string(joined.status().message()));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(joined.status()));
  return reactor;
}

grpc::ServerUnaryReactor* ParameterService::Leave(grpc::CallbackServerContext* context,
                                                  const LeaveRequest* request, LeaveResponse*) {
  const absl::Status left = shard_->Leave(*request);
  if (left.ok()) {
    spdlog::info("worker {} left{}{}", request->worker(), request->error().empty() ? "" : ": ",
                 request->error());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(left));
  return reactor;
}

grpc::ServerUnaryReactor* ParameterService::Report(grpc::CallbackServerContext* context,
                                                   const ReportRequest* request, ReportResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(shard_->Report(*request)));
  return reactor;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ParameterService::Exchange(
    grpc::CallbackServerContext* context) {
  // OnDone cannot come before this has returned the reactor.
  const std::shared_ptr<ExchangeStream> stream = ExchangeStream::Create(
      {.shard = shard_,
       .push_workers = &push_workers_,
       .worker = static_cast<uint32_t>(MetadataNumber(*context, kWorkerMetadata)),
       .incarnation = MetadataNumber(*context, kIncarnationMetadata),
       .join_follows = MetadataNumber(*context, kJoinFollowsMetadata) != 0,
       .opened = shard_->clock().Now(),
       .on_done = [this](ExchangeStream* done) {
         absl::MutexLock lock(&mutex_);
         streams_.erase(done->shared_from_this());
       }});
  {
    absl::MutexLock lock(&mutex_);
    streams_.insert(stream);
  }
  // Only now, so that a Join that comes at the same time finds the stream, or the stream the Join.
  stream->Open();
  return stream.get();
}

void ParameterService::EndWaitingStreams() {
  const Limits& limits = shard_->config().proto().limits();
  // A worker tries for so long to join.
  const absl::Time since = shard_->clock().Now() - absl::Seconds(limits.startup_seconds());
  for (const auto& stream : Streams()) stream->EndWaiting(since);
}

std::vector<std::shared_ptr<ExchangeStream>> ParameterService::Streams() {
  absl::MutexLock lock(&mutex_);
  return {streams_.begin(), streams_.end()};
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterService::Pull(
    grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
  return new PullStream(shard_, *request);
}

}  // namespace ps
