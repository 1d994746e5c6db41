#include "common/control/etcd/etcd_watch.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

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

}  // namespace

std::string EndOfPrefix(std::string prefix) {
  ++prefix.back();
  return prefix;
}

EtcdWatch::EtcdWatch(const Options& options, Listener listener)
    : options_(options),
      listener_(std::move(listener)),
      end_(EndOfPrefix(options.prefix)),
      pause_(kFirstPause),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

EtcdWatch::~EtcdWatch() = default;

void EtcdWatch::Run(const std::stop_token& stop) {
  while (true) {
    const absl::Status ended = Follow(stop);
    if (stop.stop_requested()) return;
    // A process that watches also has a lease, which warns of the same trouble.
    spdlog::debug("{}; trying again", std::string(ended.message()));
    if (!options_.clock->SleepUntil(options_.clock->Now() + pause_, stop)) return;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
}

absl::Status EtcdWatch::Follow(const std::stop_token& stop) {
  if (next_revision_ == 0) {
    RETURN_IF_ERROR(ReadAll(stop));
  }
  etcdserverpb::WatchCreateRequest request;
  request.set_key(options_.prefix);
  request.set_range_end(end_);
  request.set_start_revision(next_revision_);
  const std::unique_ptr<EtcdWatchStream> stream =
      options_.client->Watch(request, [this] { wakeup_.Wake(); });

  const Clock& clock = *options_.clock;
  const absl::Duration timeout = options_.client->timeout();
  absl::Time heard = clock.Now();
  bool asked = false;
  while (!stop.stop_requested()) {
    ASSIGN_OR_RETURN(const std::optional<etcdserverpb::WatchResponse> response, stream->Next());
    const absl::Time now = clock.Now();
    if (response.has_value()) {
      heard = now;
      asked = false;
      RETURN_IF_ERROR(Take(*response, stream.get()));
    } else if (now >= heard + kGiveUpAfter * timeout) {
      return stream->GiveUp(
          absl::StrCat("it was silent for ", absl::FormatDuration(kGiveUpAfter * timeout)));
    } else if (now >= heard + kAskAfter * timeout && !std::exchange(asked, true)) {
      stream->RequestProgress();
    } else {
      wakeup_.SleepUntil(clock, heard + (asked ? kGiveUpAfter : kAskAfter) * timeout, stop);
    }
  }
  return absl::CancelledError("told to stop");
}

absl::Status EtcdWatch::ReadAll(const std::stop_token& stop) {
  etcdserverpb::RangeRequest request;
  request.set_key(options_.prefix);
  request.set_range_end(end_);
  ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response,
                   options_.client->Range(request, stop));
  listener_.on_keys({response.kvs().begin(), response.kvs().end()});
  next_revision_ = response.header().revision() + 1;
  return absl::OkStatus();
}

absl::Status EtcdWatch::Take(const etcdserverpb::WatchResponse& response, EtcdWatchStream* stream) {
  // A store that was restored from an older backup has not come to this revision, and would keep
  // the watch waiting for it.
  const bool is_behind = response.created() && response.header().revision() + 1 < next_revision_;
  if (response.compact_revision() != 0 || is_behind) {
    next_revision_ = 0;
    return absl::UnavailableError("etcd no longer has the changes since the last one heard of");
  }
  if (response.canceled()) {
    return stream->GiveUp(absl::StrCat("it ended the watch: ", response.cancel_reason()));
  }
  pause_ = kFirstPause;
  for (const mvccpb::Event& event : response.events()) {
    listener_.on_event(event);
    next_revision_ = event.kv().mod_revision() + 1;
  }
  return absl::OkStatus();
}

}  // namespace evenshard
