#include "tests/simulation/coordinator_link.h"

#include <utility>

#include "tests/simulation/coordinator.h"

namespace evenshard {
namespace {

// A process gives its roles up some time before its lease ends.
constexpr double kMargin = 0.1;

}  // namespace

void CoordinatorLink::Start(std::function<void(const View&)> on_view) {
  on_view_ = std::move(on_view);
  // The place is taken only when etcd says so.
  Connect();
  Beat();
}

void CoordinatorLink::Connect() {
  connection_ = context_.world.Connect(node_, context_.world.Ref(context_.NodeOfCoordinator()));
  connection_->OnBroken(0, [this](const absl::Status&) {
    context_.world.Run(node_, absl::Milliseconds(20), [this] { Connect(); });
  });
  Coordinator::Peer peer;
  peer.connection = connection_;
  peer.node = node_;
  peer.number = ++connections_;
  peer.on_view = [this](const View& view) {
    if (view.number() <= view_) return;
    view_ = view.number();
    on_view_(view);
  };
  peer.on_lease = [this](absl::Time asked) {
    lease_until_ =
        std::max(lease_until_, asked + (1 - kMargin) * context_.coordinator()->silence());
  };
  peer.on_end = [this](const std::string& why) { context_.exit(node_.node, why); };
  connection_->Send(
      0, [this_coordinator = &context_, peer] { this_coordinator->coordinator()->Opened(peer); });
  if (!state_.empty()) {
    connection_->Send(0, [context = &context_, node = node_, state = state_] {
      context->coordinator()->Said(node, state);
    });
  }
}

void CoordinatorLink::Beat() {
  const NodeClock& clock = context_.world.clock(node_.node);
  const absl::Duration period = context_.coordinator()->silence() / 5;
  if (context_.plant == Plant::kBeatsByTimeOfDay) {
    if (clock.TimeOfDay() < next_beat_) {
      context_.world.Run(node_, period / 10, [this] { Beat(); });
      return;
    }
    next_beat_ = clock.TimeOfDay() + period;
  }
  const absl::Time now = clock.Now();
  if (context_.scenario.etcd && lease_until_ != absl::InfinitePast() &&
      now >= lease_until_ + 2 * kMargin * context_.coordinator()->silence()) {
    context_.exit(node_.node, "its lease has ended");
    return;
  }
  connection_->Send(0, [context = &context_, node = node_, now, state = state_] {
    if (context->scenario.etcd) {
      context->coordinator()->Heard(node, now);
    } else if (!state.empty()) {
      context->coordinator()->Said(node, state);
    }
  });
  context_.world.Run(node_, period, [this] { Beat(); });
}

void CoordinatorLink::Announce(const ProcessState& state) {
  std::string text = state.SerializeAsString();
  if (text == state_) return;
  state_ = std::move(text);
  connection_->Send(0, [context = &context_, node = node_, state = state_] {
    context->coordinator()->Said(node, state);
  });
}

bool CoordinatorLink::HoldsRoles() const {
  return !context_.scenario.etcd || context_.world.clock(node_.node).Now() < lease_until_;
}

}  // namespace evenshard
