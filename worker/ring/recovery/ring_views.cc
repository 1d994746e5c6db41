#include "worker/ring/recovery/ring_views.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/control/view/ring_members.h"
#include "common/control/view/view_check.h"
#include "common/control/view/worker_set.h"

namespace evenshard {
namespace {

// How often a wait looks whether a stop is requested.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(50);

}  // namespace

void RingViews::Heard::OnView(const View& next) {
  std::function<void()> tell;
  {
    absl::MutexLock lock(&mutex);
    view = next;
    // A later ring is acknowledged when nothing of this one is left.
    if (view.generation() == formed) {
      state.set_view(view.number());
      Announce();
    }
    if (formed > 0 && IsLater()) tell = std::exchange(later, nullptr);
  }
  if (tell) tell();
}

void RingViews::Heard::OnEnd(const absl::Status& reason) {
  std::function<void()> tell;
  {
    absl::MutexLock lock(&mutex);
    end = reason;
    tell = std::exchange(later, nullptr);
  }
  if (tell) tell();
}

RingViews::RingViews(const Options& options)
    : options_(options), heard_(std::make_shared<Heard>()) {
  {
    absl::MutexLock lock(&heard_->mutex);
    heard_->link = options.link;
    heard_->state.set_worker(options.rank);
    heard_->state.set_incarnation(NewIncarnation());
    heard_->state.set_config_fingerprint(options.config->run_fingerprint());
  }
  options.link->Start(
      {.on_view =
           [heard = heard_, workers = options.config->workers()](const View& view) {
             const absl::Status fits = CheckView(view, /*slots=*/0, workers);
             fits.ok() ? heard->OnView(view) : heard->OnEnd(fits);
           },
       .on_end = [heard = heard_](const absl::Status& reason) { heard->OnEnd(reason); }});
  absl::MutexLock lock(&heard_->mutex);
  heard_->Announce();
}

RingViews::~RingViews() {
  absl::MutexLock lock(&heard_->mutex);
  heard_->later = nullptr;
}

absl::Status RingViews::Heard::Wait(const absl::Condition& is_over, const std::stop_token& stop) {
  while (!mutex.AwaitWithTimeout(is_over, kLookPeriod)) {
    RETURN_IF_ERROR(end);
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
  }
  return absl::OkStatus();
}

absl::StatusOr<View> RingViews::Await(std::function<void()> on_later) {
  return heard_->Await(options_, std::move(on_later));
}

absl::StatusOr<View> RingViews::Heard::Await(const Options& options,
                                             std::function<void()> on_later) {
  absl::MutexLock lock(&mutex);
  later = nullptr;
  formed = 0;
  state.set_finished(false);
  while (true) {
    const auto is_news = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
      return view.number() > state.view();
    };
    if (view.number() > 0) {
      if (!IsInLastWorkerSet(view.worker_set(), options.rank)) {
        return absl::FailedPreconditionError(
            absl::StrCat("the run goes on without this worker (view ", view.number(), ")"));
      }
      if (is_news()) {
        state.set_view(view.number());
        Announce();
      }
      const WorkerView& self = view.worker(options.rank);
      if (RingMembers::IsFormed(view) && self.incarnation() == state.incarnation()) {
        formed = view.generation();
        later = std::move(on_later);
        return view;
      }
    }
    RETURN_IF_ERROR(Wait(absl::Condition(&is_news), options.stop));
  }
}

bool RingViews::IsLater(absl::Duration patience) {
  Heard& heard = *heard_;
  absl::MutexLock lock(&heard.mutex);
  const auto is_over = [&heard]() ABSL_SHARED_LOCKS_REQUIRED(heard.mutex) {
    return heard.IsLater() || !heard.end.ok();
  };
  for (absl::Duration waited; !is_over() && waited < patience; waited += kLookPeriod) {
    if (options_.stop.stop_requested()) return false;
    heard.mutex.AwaitWithTimeout(absl::Condition(&is_over), kLookPeriod);
  }
  return heard.IsLater();
}

std::string RingViews::Beginning() const {
  absl::MutexLock lock(&heard_->mutex);
  const std::string& name = heard_->view.checkpoint();
  return name.empty() ? "the initial parameters" : absl::StrCat("checkpoint ", name);
}

absl::StatusOr<bool> RingViews::Finish() { return heard_->Finish(options_.stop); }

absl::StatusOr<bool> RingViews::Heard::Finish(const std::stop_token& stop) {
  absl::MutexLock lock(&mutex);
  state.set_finished(true);
  Announce();
  const auto is_over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return IsLater() || view.finished();
  };
  RETURN_IF_ERROR(Wait(absl::Condition(&is_over), stop));
  return IsLater();
}

void RingViews::Fail(const absl::Status& reason) {
  absl::MutexLock lock(&heard_->mutex);
  heard_->state.set_failure(Printable(reason.message()));
  heard_->Announce();
}

}  // namespace evenshard
