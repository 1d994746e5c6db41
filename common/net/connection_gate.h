#ifndef EVENSHARD_COMMON_NET_CONNECTION_GATE_H_
#define EVENSHARD_COMMON_NET_CONNECTION_GATE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/config.pb.h"

namespace evenshard {

// The limits of a run, with those that the config leaves out. Those who only ask have half of all
// connections at most.
Strangers StrangersOf(const ClusterConfig& config);

// Decides which connections to a process may stay (limits.strangers). It knows no sockets: a
// connection is a number that the caller chooses. A connection is known from its first call on that
// was allowed; until then it holds one of few places, and only for a while. Those that are known
// and only ask have few places too. So whoever opens many gets few, workers and shards that are
// known stay, and there is room for further ones. Thread-compatible.
class ConnectionGate {
 public:
  struct Counts {
    uint64_t open = 0;
    uint64_t unknown = 0;  // of those
    uint64_t accepted = 0;
    uint64_t turned_away = 0;
    uint64_t pushed_out = 0;
    uint64_t timed_out = 0;
    uint64_t readers = 0;  // of those that are open
    uint64_t loud = 0;
  };

  explicit ConnectionGate(Strangers limits) : limits_(std::move(limits)) {}

  // Whether one more connection, from `host` at `now`, may come in. `now` never goes back.
  bool LetsIn(const std::string& host, absl::Time now);
  // The connection comes in. Returns another one that has to go instead, if there are too
  // many; it is not counted as open any more. REQUIRES: LetsIn(host, now).
  std::optional<int> Arrive(int connection, const std::string& host, absl::Time now);
  // The first call was allowed. `sends_data`: it is of a worker or a shard; others only ask.
  // Returns another one that only asks and has to go instead, if those are too many; it is not
  // counted as open any more.
  std::optional<int> BecomeKnown(int connection, bool sends_data);
  void End(int connection);
  // The hosts from which nobody comes in now, since too many have or one has sent too much, sorted.
  std::vector<std::string> Barred(absl::Time now);
  // For `shun_seconds` nobody comes in from the host of `connection`, which has sent too much.
  void Shun(int connection, absl::Time now);
  // Those that were not known in time. They are not counted as open any more.
  std::vector<int> TakeOverdue(absl::Time now);
  // When TakeOverdue has something next, or InfiniteFuture.
  absl::Time next_overdue() const;

  Counts counts() const;

 private:
  struct Visitor {
    int connection;
    std::string host;
    absl::Time since;
  };
  using Visitors = std::deque<Visitor>;  // the oldest first

  // How many may begin in a second from one host.
  int MostOfHost() const { return std::max(limits_.handshakes_per_second() / 2, 1); }
  void Expire(absl::Time now);
  bool IsTooFast(const std::string& host) const;
  int open() const { return static_cast<int>(known_.size() + asking_.size() + unknown_.size()); }
  // Removes the oldest one of the host that has most of them.
  int PushOut(Visitors& visitors);
  static Visitors::iterator Find(Visitors& visitors, int connection);
  absl::Duration patience() const { return absl::Seconds(limits_.handshake_seconds()); }

  const Strangers limits_;
  Counts counts_;                               // but for those of connections that are open
  std::unordered_map<int, std::string> known_;  // that send data, and their hosts
  Visitors asking_;                             // known, and send none
  Visitors unknown_;
  std::unordered_map<std::string, absl::Time> shunned_until_;
  // Those that were let in within the last second, and how many of them by host.
  std::deque<std::pair<absl::Time, std::string>> recent_;
  std::unordered_map<std::string, int> recent_of_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_CONNECTION_GATE_H_
