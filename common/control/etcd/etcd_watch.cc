#include "common/control/etcd/etcd_watch.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
// A stream that was silent for the first of these times, in timeouts of the client, is asked for a
// sign of life, and given up after the second.
constexpr double kAskAfter = 1;
constexpr double kGiveUpAfter = 2;

// The next one. No store has the largest, whatever an answer says.
int64_t After(int64_t revision) {
  return revision + (revision < std::numeric_limits<int64_t>::max() ? 1 : 0);
}

}  // namespace

std::string EndOfPrefix(std::string prefix) {
  ++prefix.back();
  return prefix;
}

EtcdWatch::EtcdWatch(const Options& options, Listener listener)
    : options_(options),
      listener_(std::move(listener)),
      end_(EndOfPrefix(options.prefix)),
      runner_(options.etcd->MakeRunner(this)),
      pause_(kFirstPause) {
  runner_->Start();
}

EtcdWatch::~EtcdWatch() { runner_->Stop(); }

EtcdMachine::Step EtcdWatch::Next(absl::Time now) {
  if (now < paused_until_) return paused_until_;
  if (next_revision_ == 0) {
    etcdserverpb::RangeRequest request;
    request.set_key(options_.prefix);
    request.set_range_end(end_);
    return request;
  }
  const absl::StatusOr<absl::Time> until = Follow(now);
  if (until.ok()) return *until;
  Pause(until.status(), now);
  return paused_until_;
}

void EtcdWatch::Answered(const EtcdAnswer& answer, absl::Time now) {
  if (!answer.ok()) return Pause(answer.status(), now);
  const auto& response = std::get<etcdserverpb::RangeResponse>(*answer);
  listener_.on_keys({response.kvs().begin(), response.kvs().end()});
  next_revision_ = After(response.header().revision());
}

absl::StatusOr<absl::Time> EtcdWatch::Follow(absl::Time now) {
  if (stream_ == nullptr) {
    etcdserverpb::WatchCreateRequest request;
    request.set_key(options_.prefix);
    request.set_range_end(end_);
    request.set_start_revision(next_revision_);
    stream_ = options_.etcd->Watch(request, [this] { runner_->Wake(); });
    heard_ = now;
    asked_ = false;
  }
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<etcdserverpb::WatchResponse> response, stream_->Next());
    if (!response.has_value()) break;
    heard_ = now;
    asked_ = false;
    RETURN_IF_ERROR(Take(*response));
  }
  const absl::Duration timeout = options_.etcd->timeout();
  if (now >= heard_ + kGiveUpAfter * timeout) {
    return stream_->GiveUp(
        absl::StrCat("it was silent for ", absl::FormatDuration(kGiveUpAfter * timeout)));
  }
  if (now >= heard_ + kAskAfter * timeout && !std::exchange(asked_, true)) {
    stream_->RequestProgress();
  }
  return heard_ + (asked_ ? kGiveUpAfter : kAskAfter) * timeout;
}

void EtcdWatch::Pause(const absl::Status& ended, absl::Time now) {
  // The requests of the process's lease warn of an etcd that does not answer.
  spdlog::debug("{}; trying again", std::string(ended.message()));
  stream_.reset();
  paused_until_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

absl::Status EtcdWatch::Take(const etcdserverpb::WatchResponse& response) {
  // A store that was restored from an older backup has not come to this revision, and would keep
  // the watch waiting for it.
  const bool is_behind = response.created() && After(response.header().revision()) < next_revision_;
  if (response.compact_revision() != 0 || is_behind) {
    next_revision_ = 0;
    return absl::UnavailableError("etcd no longer has the changes since the last one heard of");
  }
  if (response.canceled()) {
    // It may be the token that etcd refuses: the request for the keys gets another one.
    next_revision_ = 0;
    return stream_->GiveUp(absl::StrCat("it ended the watch: ", response.cancel_reason()));
  }
  pause_ = kFirstPause;
  for (const mvccpb::Event& event : response.events()) {
    listener_.on_event(event);
    next_revision_ = After(event.kv().mod_revision());
  }
  return absl::OkStatus();
}

}  // namespace evenshard
