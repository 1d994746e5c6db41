#include "common/net/connection_gate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "absl/algorithm/container.h"

namespace evenshard {
namespace {

// A handshake without TLS takes next to nothing of a processor.
constexpr int kPlaintextPerSecond = 200;
// All workers may be on one host, which may begin half of all. When a shard is lost, each of them
// tries its successor after 10, 30, 70, 150, ... ms, with new connections each time.
constexpr int kTriesPerSecond = 8;
// A handshake with certificates, and the head of the first call.
constexpr int64_t kBytesUntilKnown = 4096;
constexpr int64_t kMostBytes = 1 << 30;

}  // namespace

Strangers StrangersOf(const ClusterConfig& config) {
  Strangers limits = config.limits().strangers();
  // Each worker has a connection for its calls beside those for its streams.
  const int64_t all = int64_t{config.workers()} * (config.limits().connections() + 1);
  const int needed =
      static_cast<int>(std::min<int64_t>(all, std::numeric_limits<int>::max() / kTriesPerSecond));
  if (!limits.has_connections()) {
    limits.set_connections(std::max(limits.connections(), 2 * needed));
  }
  if (!limits.has_handshakes()) limits.set_handshakes(std::max(limits.handshakes(), needed));
  if (!limits.has_handshakes_per_second()) {
    const int ordinary =
        config.security().has_certificate() ? limits.handshakes_per_second() : kPlaintextPerSecond;
    limits.set_handshakes_per_second(std::max(ordinary, kTriesPerSecond * needed));
  }
  limits.set_readers(std::min(limits.readers(), std::max(limits.connections() / 2, 1)));
  if (!limits.has_asking_burst_bytes()) {
    limits.set_asking_burst_bytes(static_cast<int>(
        std::clamp<int64_t>(kBytesUntilKnown * needed, limits.asking_burst_bytes(), kMostBytes)));
  }
  // The others as they are by default, so that statistics show them.
  limits.set_handshake_seconds(limits.handshake_seconds());
  limits.set_streams(limits.streams());
  limits.set_header_bytes(limits.header_bytes());
  limits.set_log_lines(limits.log_lines());
  limits.set_asking_bytes_per_second(limits.asking_bytes_per_second());
  limits.set_shun_seconds(limits.shun_seconds());
  limits.set_pulls(limits.pulls());
  limits.set_snapshots(limits.snapshots());
  limits.set_ping_seconds(limits.ping_seconds());
  return limits;
}

void ConnectionGate::Expire(absl::Time now) {
  std::erase_if(shunned_until_, [&](const auto& each) { return each.second <= now; });
  for (; !recent_.empty() && now - recent_.front().first >= absl::Seconds(1); recent_.pop_front()) {
    const auto of_host = recent_of_.find(recent_.front().second);
    if (--of_host->second == 0) recent_of_.erase(of_host);
  }
}

bool ConnectionGate::IsTooFast(const std::string& host) const {
  const auto of_host = recent_of_.find(host);
  return static_cast<int>(recent_.size()) >= limits_.handshakes_per_second() ||
         (of_host != recent_of_.end() && of_host->second >= MostOfHost());
}

std::vector<std::string> ConnectionGate::Barred(absl::Time now) {
  Expire(now);
  std::set<std::string> barred;
  for (const auto& [host, until] : shunned_until_) barred.insert(host);
  for (const auto& [host, count] : recent_of_) {
    if (count >= MostOfHost()) barred.insert(host);
  }
  return {barred.begin(), barred.end()};
}

int ConnectionGate::PushOut(Visitors& visitors) {
  std::map<std::string, int> of_host;
  int most = 0;
  for (const Visitor& each : visitors) most = std::max(most, ++of_host[each.host]);
  const auto goes =
      absl::c_find_if(visitors, [&](const Visitor& each) { return of_host[each.host] == most; });
  const int connection = goes->connection;
  visitors.erase(goes);
  ++counts_.pushed_out;
  return connection;
}

bool ConnectionGate::LetsIn(const std::string& host, absl::Time now) {
  Expire(now);
  const bool has_place = open() < limits_.connections() || !unknown_.empty();
  if (has_place && !shunned_until_.contains(host) && !IsTooFast(host)) return true;
  ++counts_.turned_away;
  return false;
}

std::optional<int> ConnectionGate::Arrive(int connection, const std::string& host, absl::Time now) {
  std::optional<int> pushed_out;
  if (open() >= limits_.connections() ||
      static_cast<int>(unknown_.size()) >= limits_.handshakes()) {
    pushed_out = PushOut(unknown_);
  }
  unknown_.push_back({connection, host, now});
  recent_.emplace_back(now, host);
  ++recent_of_[host];
  ++counts_.accepted;
  return pushed_out;
}

ConnectionGate::Visitors::iterator ConnectionGate::Find(Visitors& visitors, int connection) {
  return absl::c_find_if(visitors,
                         [&](const Visitor& each) { return each.connection == connection; });
}

std::optional<int> ConnectionGate::BecomeKnown(int connection, bool sends_data) {
  const auto found = Find(unknown_, connection);
  if (found == unknown_.end()) return std::nullopt;
  std::optional<int> pushed_out;
  if (sends_data) {
    known_.emplace(connection, found->host);
  } else {
    if (static_cast<int>(asking_.size()) >= limits_.readers()) pushed_out = PushOut(asking_);
    asking_.push_back(*found);
  }
  unknown_.erase(found);
  return pushed_out;
}

void ConnectionGate::End(int connection) {
  for (Visitors* visitors : {&asking_, &unknown_}) {
    const auto found = Find(*visitors, connection);
    if (found != visitors->end()) visitors->erase(found);
  }
  known_.erase(connection);
}

void ConnectionGate::Shun(int connection, absl::Time now) {
  ++counts_.loud;
  for (Visitors* visitors : {&asking_, &unknown_}) {
    const auto found = Find(*visitors, connection);
    if (found != visitors->end()) {
      shunned_until_[found->host] = now + absl::Seconds(limits_.shun_seconds());
    }
  }
}

std::vector<int> ConnectionGate::TakeOverdue(absl::Time now) {
  std::vector<int> overdue;
  for (; next_overdue() <= now; unknown_.pop_front()) {
    overdue.push_back(unknown_.front().connection);
    ++counts_.timed_out;
  }
  return overdue;
}

absl::Time ConnectionGate::next_overdue() const {
  return unknown_.empty() ? absl::InfiniteFuture() : unknown_.front().since + patience();
}

ConnectionGate::Counts ConnectionGate::counts() const {
  Counts counts = counts_;
  counts.open = open();
  counts.unknown = unknown_.size();
  counts.readers = asking_.size();
  return counts;
}

}  // namespace evenshard
