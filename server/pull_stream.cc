#include "server/pull_stream.h"

#include "absl/strings/str_cat.h"
#include "common/encoding.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "proto/parameter_server.pb.h"
#include "server/chunk_message.h"

namespace ps {

PullStream::PullStream(Shard* shard, const grpc::ByteBuffer& request) : shard_(shard) {
  PullRequest parsed;
  grpc::ByteBuffer bytes(request);  // Deserialize empties what it reads
  const grpc::Status status = grpc::SerializationTraits<PullRequest>::Deserialize(&bytes, &parsed);
  if (!status.ok()) {
    Finish({grpc::StatusCode::INVALID_ARGUMENT, "malformed PullRequest"});
  } else if (parsed.plan_fingerprint() != shard->config().plan().fingerprint()) {
    Finish({grpc::StatusCode::FAILED_PRECONDITION,
            absl::StrCat("the puller has another plan than shard ", shard->index(),
                         "; give both the same config file")});
  } else if (!Encoding_IsValid(parsed.encoding())) {
    Finish(
        {grpc::StatusCode::INVALID_ARGUMENT,
         absl::StrCat("the puller asks for ", EncodingName(parsed.encoding()), "; shard ",
                      shard->index(), " speaks ", EncodingNames([](Encoding) { return true; }))});
  } else {
    encoding_ = parsed.encoding();
    WriteNext();
  }
}

void PullStream::OnWriteDone(bool ok) {
  if (ok) {
    WriteNext();
  } else {
    Finish(grpc::Status::CANCELLED);
  }
}

void PullStream::WriteNext() {
  if (next_ == shard_->store().chunks().size()) {
    Finish(grpc::Status::OK);
    return;
  }
  StoredChunk& chunk = shard_->store().chunks()[next_++];
  write_ = PullMessage(shard_, chunk, encoding_);
  StartWrite(&write_);
}

}  // namespace ps
