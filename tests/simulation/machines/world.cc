#include "tests/simulation/machines/world.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace evenshard {
namespace {

constexpr size_t kLines = 400;

}  // namespace

World::~World() {
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) Halt(node);
  for (const std::weak_ptr<Connection>& made : made_) {
    const std::shared_ptr<Connection> connection = made.lock();
    if (connection == nullptr) continue;
    for (Connection::Side& side : connection->sides_) {
      side.on_broken = nullptr;
      side.incoming.clear();
    }
  }
}

int World::AddNode(std::string name) {
  Node& added = nodes_.emplace_back();
  added.name = std::move(name);
  added.clock = std::make_unique<NodeClock>(&loop_);
  return static_cast<int>(nodes_.size()) - 1;
}

NodeRef World::Boot(int node, std::function<void()> after_event, std::function<void()> on_crash) {
  Node& booted = nodes_[node];
  ++booted.start;
  booted.running = true;
  booted.dying = false;
  booted.effects_left = -1;
  booted.clock->Boot();
  booted.paused_until = absl::InfinitePast();
  booted.deferred.clear();
  booted.connections.clear();
  booted.after_event = std::move(after_event);
  booted.on_crash = std::move(on_crash);
  return Ref(node);
}

void World::Halt(int node) {
  Node& halted = nodes_[node];
  halted.running = false;
  halted.dying = true;
  halted.deferred.clear();
  for (const auto& connection : std::exchange(halted.connections, {})) {
    const int side = connection->sides_[0].node == Ref(node) ? 0 : 1;
    connection->sides_[side].open = false;
    connection->sides_[side].on_broken = nullptr;
    connection->sides_[side].incoming.clear();
    if (!connection->sides_[1 - side].open) continue;
    // What was sent may still arrive, or be lost with the connection.
    const absl::Status reset = absl::UnavailableError("the connection was reset");
    if (dice_.Once(2)) connection->sides_[1 - side].incoming.clear();
    connection->Enqueue(1 - side, [connection, side, reset] { connection->Hear(1 - side, reset); });
  }
}

void World::Pause(int node, absl::Time until) {
  if (!nodes_[node].running) return;
  nodes_[node].paused_until = std::max(nodes_[node].paused_until, until);
  Disturb(node, until);
  loop_.At(until, [this, ref = Ref(node)] { WakeUp(ref); });
  for (const auto& connection : nodes_[node].connections) KeepAlive(connection);
}

void World::KeepAlive(const std::shared_ptr<Connection>& connection) {
  const auto stands_still = [this](const NodeRef& ref) {
    return IsRunning(ref) && nodes_[ref.node].paused_until > loop_.Now();
  };
  const NodeRef to = connection->sides_[1].node;
  if (keepalive == absl::InfiniteDuration() || !stands_still(to)) return;
  loop_.After(keepalive, [connection, to, stands_still] {
    if (stands_still(to)) connection->Break(0, absl::UnavailableError("nothing is heard any more"));
  });
}

void World::WakeUp(NodeRef ref) {
  if (!IsRunning(ref) || nodes_[ref.node].paused_until > loop_.Now()) return;
  while (IsRunning(ref) && !nodes_[ref.node].deferred.empty()) {
    const std::function<void()> run = std::move(nodes_[ref.node].deferred.front());
    nodes_[ref.node].deferred.pop_front();
    Execute(ref, run);
  }
}

bool World::MayAct(int node) {
  Node& actor = nodes_[node];
  if (!actor.running || actor.dying) return false;
  if (actor.effects_left < 0) return true;
  if (actor.effects_left-- > 0) return true;
  actor.dying = true;
  Log(actor.name + " crashes in the middle of what it does");
  loop_.After(absl::ZeroDuration(), [this, ref = Ref(node)] {
    if (IsRunning(ref) && nodes_[ref.node].on_crash) nodes_[ref.node].on_crash();
  });
  return false;
}

void World::Cut(int from, int to, absl::Time until) {
  absl::Time& cut = cuts_[{from, to}];
  cut = std::max(cut, until);
  Disturb(from, until);
  Disturb(to, until);
  // A side notices after a while that nothing comes any more, or is acknowledged, if at all.
  for (const auto& connection : nodes_[from].connections) {
    if (connection->node(0) != to && connection->node(1) != to) continue;
    for (int side = 0; side < 2; ++side) {
      absl::Duration noticed = absl::Seconds(dice_.Scale(0.05, 5));
      if (dice_.Once(2)) noticed = absl::InfiniteDuration();
      if (side == 0) noticed = std::min(noticed, keepalive);
      if (noticed == absl::InfiniteDuration()) continue;
      loop_.After(noticed, [this, connection, side] {
        if (!IsCut(connection->node(0), connection->node(1))) return;
        connection->Break(side, absl::UnavailableError("nothing is heard any more"));
      });
    }
  }
}

void World::Slow(int node, absl::Duration delay, absl::Time until) {
  nodes_[node].slow = delay;
  nodes_[node].slow_until = until;
  Disturb(node, until);
}

void World::Disturb(int node, absl::Time until) {
  nodes_[node].disturbed_until = std::max(nodes_[node].disturbed_until, until);
}

bool World::IsCut(int a, int b) const {
  return std::max(CutUntil(a, b), CutUntil(b, a)) > loop_.Now();
}

void World::BreakAll(int node) {
  for (const auto& connection : std::vector(nodes_[node].connections)) {
    connection->Break(dice_.Int(0, 1), absl::UnavailableError("the connection broke"));
  }
}

absl::Time World::CutUntil(int from, int to) const {
  const auto found = cuts_.find({from, to});
  return found == cuts_.end() ? absl::InfinitePast() : found->second;
}

void World::Run(NodeRef ref, absl::Duration delay, std::function<void()> run) {
  loop_.After(delay, [this, ref, run = std::move(run)] { Execute(ref, run); });
}

void World::Execute(NodeRef ref, const std::function<void()>& run) {
  if (!IsRunning(ref)) return;
  Node& node = nodes_[ref.node];
  if (node.dying) return;
  if (node.paused_until > loop_.Now()) {
    node.deferred.push_back(run);
    return;
  }
  run();
  // The process may have ended itself meanwhile.
  if (IsRunning(ref) && !nodes_[ref.node].dying && nodes_[ref.node].after_event) {
    const std::function<void()> after_event = nodes_[ref.node].after_event;
    after_event();
  }
}

absl::Duration World::Delay(int from, int to) {
  absl::Duration delay = typical_delay * dice_.Scale(0.3, 3);
  if (dice_.Once(50)) delay *= dice_.Scale(2, 50);
  for (const int node : {from, to}) {
    if (nodes_[node].slow_until > loop_.Now()) delay += nodes_[node].slow * dice_.Between(0, 1);
  }
  return delay;
}

std::shared_ptr<Connection> World::Connect(NodeRef from, NodeRef to) {
  auto connection = std::make_shared<Connection>(this, from, to);
  if (made_.size() % 1024 == 1023) {
    std::erase_if(made_, [](const std::weak_ptr<Connection>& each) { return each.expired(); });
  }
  made_.push_back(connection);
  for (const NodeRef& ref : {from, to}) {
    if (!IsRunning(ref)) continue;
    auto& connections = nodes_[ref.node].connections;
    if (connections.size() % 64 == 63) {
      std::erase_if(connections, [](const auto& each) {
        return !each->sides_[0].open && !each->sides_[1].open;
      });
    }
    connections.push_back(connection);
  }
  KeepAlive(connection);
  if (IsCut(from.node, to.node)) {
    // Nobody answers.
    loop_.After(absl::Seconds(dice_.Scale(0.05, 5)), [this, connection] {
      if (!IsCut(connection->node(0), connection->node(1))) return;
      connection->Break(0, absl::UnavailableError("it cannot be reached"));
    });
  }
  if (!IsRunning(to)) {
    connection->sides_[1].open = false;
    connection->Enqueue(0, [connection] {
      connection->Hear(0, absl::UnavailableError("the connection was refused"));
    });
  }
  return connection;
}

void World::Log(std::string line) {
  std::string stamped = absl::StrFormat("%9.4f  %s", absl::ToDoubleSeconds(loop_.Elapsed()), line);
  if (verbose) std::fprintf(stdout, "%s\n", stamped.c_str());
  lines_.push_back(std::move(stamped));
  if (lines_.size() > kLines) lines_.pop_front();
}

void Connection::Send(int side, std::function<void()> deliver) {
  if (!sides_[side].open || !world_.MayAct(sides_[side].node.node)) return;
  if (!sides_[1 - side].open) return;
  Enqueue(1 - side, std::move(deliver));
}

void Connection::Close(int side, const absl::Status& status) {
  if (!sides_[side].open) return;
  Send(side, [self = shared_from_this(), side, status] { self->Hear(1 - side, status); });
  sides_[side].open = false;
  sides_[side].on_broken = nullptr;
  sides_[side].incoming.clear();
}

void Connection::Break(int side, const absl::Status& status) {
  if (!sides_[side].open) return;
  sides_[side].incoming.clear();
  world_.Run(sides_[side].node, absl::ZeroDuration(),
             [self = shared_from_this(), side, status] { self->Hear(side, status); });
}

void Connection::Hear(int side, const absl::Status& status) {
  if (!sides_[side].open) return;
  sides_[side].open = false;
  sides_[side].incoming.clear();
  // This side's part of the network tells the other one.
  if (sides_[1 - side].open) {
    Enqueue(1 - side, [self = shared_from_this(), side] {
      self->Hear(1 - side, absl::UnavailableError("the connection was reset"));
    });
  }
  const auto on_broken = std::exchange(sides_[side].on_broken, nullptr);
  if (on_broken) on_broken(status);
}

void Connection::Enqueue(int to, std::function<void()> deliver) {
  Side& side = sides_[to];
  absl::Time at = world_.loop().Now() + world_.Delay(node(1 - to), node(to));
  if (!side.incoming.empty()) at = std::max(at, side.incoming.back().first);
  side.incoming.emplace_back(at, std::move(deliver));
  if (std::exchange(side.pumping, true)) return;
  world_.loop().At(at, [self = shared_from_this(), to] { self->Pump(to); });
}

void Connection::Pump(int to) {
  Side& side = sides_[to];
  const absl::Time healed = world_.CutUntil(node(1 - to), node(to));
  if (healed > world_.loop().Now()) {
    world_.loop().At(healed, [self = shared_from_this(), to] { self->Pump(to); });
    return;
  }
  while (side.open && !side.incoming.empty() &&
         side.incoming.front().first <= world_.loop().Now()) {
    auto deliver = std::move(side.incoming.front().second);
    side.incoming.pop_front();
    world_.Run(side.node, absl::ZeroDuration(),
               [self = shared_from_this(), to, deliver = std::move(deliver)] {
                 if (self->sides_[to].open) deliver();
               });
  }
  side.pumping = false;
  if (side.incoming.empty()) return;
  side.pumping = true;
  world_.loop().At(side.incoming.front().first,
                   [self = shared_from_this(), to] { self->Pump(to); });
}

}  // namespace evenshard
