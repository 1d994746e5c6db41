#ifndef EVENSHARD_TESTS_SIMULATION_MACHINES_WORLD_H_
#define EVENSHARD_TESTS_SIMULATION_MACHINES_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/machines/event_loop.h"
#include "tests/simulation/machines/node_clock.h"
#include "tests/testing/dice.h"

namespace evenshard {

// One start of a node. What is meant for it never reaches a later start.
struct NodeRef {
  int node = -1;
  uint64_t start = 0;

  friend bool operator==(const NodeRef&, const NodeRef&) = default;
};

class Connection;

// The nodes of a simulated cluster, which run one process at a time each, and the network between
// them. A node crashes, stops for a while, or is cut off from another one. Everything happens in
// events of the loop, and every delay is drawn from the seed. Used by one thread.
class World {
 public:
  explicit World(uint64_t seed) : dice_(seed) {}
  ~World();

  EventLoop& loop() { return loop_; }
  const EventLoop& loop() const { return loop_; }
  Dice& dice() { return dice_; }

  int AddNode(std::string name);
  const std::string& name(int node) const { return nodes_[node].name; }

  // Begins another start of a node that is halted. `after_event` is called after each event of the
  // node; `on_crash` destroys the node's process, when the node crashes in the middle of an event.
  NodeRef Boot(int node, std::function<void()> after_event, std::function<void()> on_crash);
  // Ends the present start: its connections break, and nothing of it happens any more.
  void Halt(int node);
  bool IsRunning(int node) const { return nodes_[node].running; }
  bool IsRunning(NodeRef ref) const { return ref == Ref(ref.node) && IsRunning(ref.node); }
  NodeRef Ref(int node) const { return {node, nodes_[node].start}; }

  // The node does nothing until then.
  void Pause(int node, absl::Time until);
  // The node crashes after it has had so many more effects: messages and changes of the disk.
  void CrashAfter(int node, int effects) { nodes_[node].effects_left = effects; }
  // Counts an effect of a node. Returns false if the node has crashed before it.
  bool MayAct(int node);

  // Nothing passes from a node to another one until then.
  void Cut(int from, int to, absl::Time until);
  // What the node sends and receives takes so much longer until then.
  void Slow(int node, absl::Duration delay, absl::Time until);
  void BreakAll(int node);
  absl::Time CutUntil(int from, int to) const;

  // The node's clock, which lives as long as the world.
  NodeClock& clock(int node) { return *nodes_[node].clock; }
  // Until when something keeps the node from being heard in time.
  absl::Time DisturbedUntil(int node) const { return nodes_[node].disturbed_until; }

  // Runs something at a node after a while, unless this start of it has ended.
  void Run(NodeRef ref, absl::Duration delay, std::function<void()> run);
  // A time that a message needs.
  absl::Duration Delay(int from, int to);
  // The typical one. May be changed at the beginning.
  absl::Duration typical_delay = absl::Microseconds(300);
  // How long a process that has opened a connection takes at most to notice that nothing comes
  // back, because of a cut or because the other process stands still.
  absl::Duration keepalive = absl::InfiniteDuration();

  // Opens a connection. A message to a node that is not running any more breaks it.
  std::shared_ptr<Connection> Connect(NodeRef from, NodeRef to);

  // Writes a line of the account of what happened, of which the last ones are kept.
  void Log(std::string line);
  const std::deque<std::string>& lines() const { return lines_; }
  bool verbose = false;

 private:
  friend class Connection;

  struct Node {
    std::string name;
    uint64_t start = 0;
    bool running = false;
    bool dying = false;
    int effects_left = -1;  // -1: no crash is due
    absl::Time paused_until = absl::InfinitePast();
    absl::Time slow_until = absl::InfinitePast();
    absl::Duration slow;
    absl::Time disturbed_until = absl::InfinitePast();
    std::unique_ptr<NodeClock> clock;
    std::deque<std::function<void()>> deferred;
    std::function<void()> after_event;
    std::function<void()> on_crash;
    std::vector<std::shared_ptr<Connection>> connections;
  };

  // Whether something is lost between two nodes at the moment.
  bool IsCut(int a, int b) const;
  void Disturb(int node, absl::Time until);
  // If the node that a connection was opened to stands still, the other side notices.
  void KeepAlive(const std::shared_ptr<Connection>& connection);
  void Execute(NodeRef ref, const std::function<void()>& run);
  void WakeUp(NodeRef ref);

  Dice dice_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, absl::Time> cuts_;  // by sender and receiver
  std::deque<std::string> lines_;
  std::vector<std::weak_ptr<Connection>> made_;  // what waits in them may hold them
  EventLoop loop_;  // destroyed first, since what is left in it may ask a node's clock
};

// A connection between two nodes, which delivers in order in each direction. Side 0 opened it. Each
// side may be told that it is broken, and not both at the same time.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(World* world, NodeRef from, NodeRef to) : world_(*world) {
    sides_[0].node = from;
    sides_[1].node = to;
  }

  // What a side wants to hear: that the connection has ended.
  void OnBroken(int side, std::function<void(const absl::Status&)> on_broken) {
    sides_[side].on_broken = std::move(on_broken);
  }
  // Runs `deliver` at the other side.
  void Send(int side, std::function<void()> deliver);
  // Ends the connection in order: the other side hears `status` after all that was sent before.
  // This side hears nothing any more.
  void Close(int side, const absl::Status& status);
  // A side loses what is on the way to it, and hears that the connection has ended.
  void Break(int side, const absl::Status& status);
  bool is_open(int side) const { return sides_[side].open; }
  int node(int side) const { return sides_[side].node.node; }

 private:
  friend class World;

  struct Side {
    NodeRef node;
    bool open = true;
    std::function<void(const absl::Status&)> on_broken;
    std::deque<std::pair<absl::Time, std::function<void()>>> incoming;
    bool pumping = false;
  };

  void Enqueue(int to, std::function<void()> deliver);
  void Pump(int to);
  void Hear(int side, const absl::Status& status);

  World& world_;
  Side sides_[2];
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_MACHINES_WORLD_H_
