#include "server/pull_stream.h"

#include <grpc/grpc.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/status_conversion.h"
#include "common/wire/encoding.h"
#include "server/chunk_message.h"
#include "spdlog/spdlog.h"

namespace ps {

absl::Status OpenPulls::Add(PullStream* pull) {
  absl::MutexLock lock(&mutex_);
  if (pulls_.size() >= limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the shard serves ", limit_,
                     " Pulls, the most at a time: one for each worker "
                     "and ",
                     kReaders, " more; try again when another has ended"));
  }
  pulls_.insert(pull);
  return absl::OkStatus();
}

void OpenPulls::Remove(PullStream* pull) {
  absl::MutexLock lock(&mutex_);
  pulls_.erase(pull);
}

void OpenPulls::EndUnread() {
  const absl::Time since = clock_->Now() - patience_;
  absl::MutexLock lock(&mutex_);
  for (PullStream* pull : pulls_) {
    if (pull->write_began() >= since) continue;
    pull->Cancel(absl::DeadlineExceededError(absl::StrCat("no chunk of the Pull was read for ",
                                                          absl::FormatDuration(patience_),
                                                          " (limits.exchange_seconds)")));
  }
}

PullStream::PullStream(grpc::CallbackServerContext* context, std::shared_ptr<Shard> shard,
                       OpenPulls* open, const absl::StatusOr<PullRequest>& request)
    : context_(context),
      shard_(std::move(shard)),
      open_(open),
      write_began_(absl::ToUnixNanos(open->Now())) {
  absl::Status refused = request.ok() ? Check(*request) : request.status();
  if (refused.ok()) refused = open_->Add(this);
  if (!refused.ok()) {
    Finish(ToGrpc(refused));
    return;
  }
  encoding_ = request->encoding();
  WriteNext();
}

absl::Status PullStream::Check(const PullRequest& request) const {
  RETURN_IF_ERROR(shard_->CheckHoldsRole());
  if (request.plan_fingerprint() != shard_->config().plan().fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat("the puller has another plan than shard ",
                                                      shard_->index(),
                                                      "; give both the same config file"));
  }
  if (!Encoding_IsValid(request.encoding())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the puller asks for ", EncodingName(request.encoding()), "; shard ",
                     shard_->index(), " speaks ", EncodingNames([](Encoding) { return true; })));
  }
  return absl::OkStatus();
}

void PullStream::Cancel(const absl::Status& reason) {
  spdlog::warn("ended the Pull of {}: {}", Printable(context_->peer()),
               std::string(reason.message()));
  // Finish would wait for the write under way, which nobody reads. gRPC's interface for C++ can
  // cancel the call but not state a reason.
  grpc_call_cancel_with_status(context_->c_call(), static_cast<grpc_status_code>(reason.raw_code()),
                               std::string(reason.message()).c_str(), nullptr);
}

void PullStream::OnWriteDone(bool ok) {
  if (ok) {
    WriteNext();
  } else {
    Finish(grpc::Status::CANCELLED);
  }
}

void PullStream::OnDone() {
  open_->Remove(this);
  delete this;
}

void PullStream::WriteNext() {
  if (next_ == shard_->store().chunks().size()) {
    Finish(grpc::Status::OK);
    return;
  }
  StoredChunk& chunk = shard_->store().chunks()[next_++];
  write_ = PullMessage(shard_.get(), chunk, encoding_);
  write_began_ = absl::ToUnixNanos(open_->Now());
  StartWrite(&write_);
}

}  // namespace ps
