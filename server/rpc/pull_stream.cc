#include "server/rpc/pull_stream.h"

#include <grpc/grpc.h>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/net/status_conversion.h"
#include "common/security/refusal_log.h"

namespace evenshard {

absl::Status OpenPulls::Add(PullStream* pull) {
  absl::MutexLock lock(&mutex_);
  if (pulls_.size() >= options_.limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the shard serves ", options_.limit, " ", options_.name, "s, the most at a time",
        options_.limit_means, "; try again when another has ended"));
  }
  pulls_.insert(pull);
  return absl::OkStatus();
}

void OpenPulls::Remove(PullStream* pull) {
  absl::MutexLock lock(&mutex_);
  pulls_.erase(pull);
}

void OpenPulls::EndUnread() {
  const absl::Time since = options_.clock->Now() - options_.patience;
  absl::MutexLock lock(&mutex_);
  for (PullStream* pull : pulls_) {
    if (pull->write_began() >= since) continue;
    pull->Cancel(absl::DeadlineExceededError(
        absl::StrCat("no chunk of the ", options_.name, " was read for ",
                     absl::FormatDuration(options_.patience), " (limits.exchange_seconds)")));
  }
}

PullStream* PullStream::Start(grpc::CallbackServerContext* context, OpenPulls* open,
                              MakeSource make_source) {
  std::shared_ptr<PullStream> stream(new PullStream(context, open));
  stream->self_ = stream;
  absl::Status refused = open->Add(stream.get());
  if (refused.ok()) {
    auto source = make_source([waiting = std::weak_ptr<PullStream>(stream)] {
      if (const auto pull = waiting.lock(); pull != nullptr) pull->Wake();
    });
    if (source.ok()) stream->source_ = *std::move(source);
    refused = source.status();
  }
  // gRPC does not call OnDone before the caller has returned the reactor.
  if (refused.ok()) {
    stream->Advance();
  } else {
    stream->End(ToGrpc(refused));
  }
  return stream.get();
}

void PullStream::Advance() {
  while (true) {
    absl::StatusOr<ChunkSource::Next> next = source_->TakeNext();
    if (!next.ok()) return End(ToGrpc(next.status()));
    if (next->message.has_value()) {
      write_ = *std::move(next->message);
      write_began_ = absl::ToUnixNanos(open_->Now());
      StartWrite(&write_);
      return;
    }
    if (next->is_end) return End(grpc::Status::OK);
    if (Wait(next->pause)) return;
  }
}

bool PullStream::Wait(absl::Duration pause) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(is_woken_, false)) return false;
    write_began_ = kNever;
    if (!is_cancelled_) {
      state_ = State::kWaits;
      if (pause != absl::InfiniteDuration()) SetAlarm(pause);
      return true;
    }
  }
  End(grpc::Status::CANCELLED);
  return true;
}

void PullStream::Wake() {
  absl::MutexLock lock(&mutex_);
  SetAlarm(absl::ZeroDuration());
}

void PullStream::SetAlarm(absl::Duration from_now) {
  alarm_ = std::make_unique<grpc::Alarm>();  // the last one's callback may still be running
  alarm_->Set(absl::ToChronoTime(absl::Now() + from_now), [waiting = weak_from_this()](bool) {
    if (const auto pull = waiting.lock(); pull != nullptr) pull->GoOn();
  });
}

void PullStream::GoOn() {
  {
    absl::MutexLock lock(&mutex_);
    is_woken_ = state_ == State::kBusy;
    if (state_ != State::kWaits) return;
    state_ = State::kBusy;
  }
  Advance();
}

void PullStream::End(const grpc::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    state_ = State::kEnded;
  }
  Finish(status);
}

void PullStream::Cancel(const absl::Status& reason) {
  LogRefusal(absl::StrCat("the rest of the ", open_->name(), " of ", Printable(context_->peer()),
                          ": ", reason.message()));
  // Finish would wait for the write under way, which the client does not read. gRPC's interface for
  // C++ can cancel the call but not state a reason.
  grpc_call_cancel_with_status(context_->c_call(), static_cast<grpc_status_code>(reason.raw_code()),
                               std::string(reason.message()).c_str(), nullptr);
}

void PullStream::OnWriteDone(bool ok) {
  if (ok) {
    Advance();
  } else {
    End(grpc::Status::CANCELLED);
  }
}

void PullStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    is_cancelled_ = true;
    // One that is busy finds out by itself.
    if (state_ != State::kWaits) return;
    state_ = State::kBusy;
  }
  End(grpc::Status::CANCELLED);
}

void PullStream::OnDone() {
  open_->Remove(this);
  source_.reset();  // in this thread, and not in the one of a waker, which holds locks
  const std::shared_ptr<PullStream> self = std::move(self_);
}

}  // namespace evenshard
