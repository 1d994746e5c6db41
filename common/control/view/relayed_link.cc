#include "common/control/view/relayed_link.h"

#include <utility>

namespace evenshard {

RelayedLink::RelayedLink(ViewLink* link, Listener early)
    : link_(link), listener_(std::move(early)) {
  link_->Start({.on_view =
                    [this](const View& view) {
                      absl::MutexLock lock(&mutex_);
                      latest_ = view;
                      listener_.on_view(view);
                    },
                .on_end =
                    [this](const absl::Status& reason) {
                      absl::MutexLock lock(&mutex_);
                      end_ = reason;
                      listener_.on_end(reason);
                    }});
}

void RelayedLink::Start(Listener listener) {
  absl::MutexLock lock(&mutex_);
  listener_ = std::move(listener);
  if (latest_.has_value()) listener_.on_view(*latest_);
  if (end_.has_value()) listener_.on_end(*end_);
}

}  // namespace evenshard
