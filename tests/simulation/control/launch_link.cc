#include "tests/simulation/control/launch_link.h"

#include <utility>

#include "tests/simulation/control/launch_host.h"

namespace evenshard {

namespace {

// The one that runs when a message comes.
LaunchHost& HostOf(const Context& context) {
  return static_cast<LaunchHost&>(*context.coordinator());
}

}  // namespace

void LaunchLink::Start(Listener listener) {
  listener_ = std::move(listener);
  Connect();
  Beat();
}

void LaunchLink::Connect() {
  connection_ = context_.world.Connect(node_, context_.world.Ref(context_.NodeOfCoordinator()));
  connection_->OnBroken(0, [this](const absl::Status&) {
    context_.world.Run(node_, absl::Milliseconds(20), [this] { Connect(); });
  });
  LaunchHost::Peer peer;
  peer.connection = connection_;
  peer.node = node_;
  peer.number = ++connections_;
  peer.on_view = [this](const View& view) {
    if (view.number() <= view_) return;
    view_ = view.number();
    listener_.on_view(view);
  };
  peer.on_end = listener_.on_end;
  connection_->Send(0, [context = &context_, peer] { HostOf(*context).Opened(peer); });
  if (!state_.empty()) Say();
}

void LaunchLink::Beat() {
  const absl::Duration period = context_.coordinator()->silence() / 5;
  if (context_.plant == Plant::kBeatsByTimeOfDay) {
    const absl::Time now = context_.world.clock(node_.node).TimeOfDay();
    if (now < next_beat_) {
      context_.world.Run(node_, period / 10, [this] { Beat(); });
      return;
    }
    next_beat_ = now + period;
  }
  Say();
  context_.world.Run(node_, period, [this] { Beat(); });
}

void LaunchLink::Announce(const ProcessState& state) {
  std::string text = state.SerializeAsString();
  if (text == state_) return;
  state_ = std::move(text);
  Say();
}

void LaunchLink::Say() {
  connection_->Send(0, [context = &context_, node = node_, state = state_] {
    if (!state.empty()) HostOf(*context).Said(node, state);
  });
}

}  // namespace evenshard
