#include "common/net/connection_gate.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/algorithm/container.h"

namespace evenshard {
namespace {

constexpr absl::Duration kShunned = absl::Seconds(1);
// A handshake without TLS takes next to nothing of a processor.
constexpr int kPlaintextPerSecond = 200;

}  // namespace

Strangers StrangersOf(const ClusterConfig& config) {
  Strangers limits = config.limits().strangers();
  // Each worker has a connection for its calls beside those for its streams.
  const int64_t all = int64_t{config.workers()} * (config.limits().connections() + 1);
  const int needed = static_cast<int>(std::min<int64_t>(all, std::numeric_limits<int>::max() / 2));
  if (!limits.has_connections()) {
    limits.set_connections(std::max(limits.connections(), 2 * needed));
  }
  if (!limits.has_handshakes()) limits.set_handshakes(std::max(limits.handshakes(), needed));
  if (!limits.has_handshakes_per_second()) {
    const int ordinary =
        config.security().has_certificate() ? limits.handshakes_per_second() : kPlaintextPerSecond;
    limits.set_handshakes_per_second(std::max(ordinary, 2 * needed));
  }
  return limits;
}

bool ConnectionGate::IsTooFast(const std::string& host, absl::Time now) {
  for (; !recent_.empty() && now - recent_.front().first >= absl::Seconds(1); recent_.pop_front()) {
    const auto of_host = recent_of_.find(recent_.front().second);
    if (--of_host->second == 0) recent_of_.erase(of_host);
  }
  const int most = limits_.handshakes_per_second();
  const auto of_host = recent_of_.find(host);
  return static_cast<int>(recent_.size()) >= most ||
         (of_host != recent_of_.end() && of_host->second >= std::max(most / 2, 1));
}

std::deque<ConnectionGate::Unknown>::iterator ConnectionGate::MostTakenFrom() {
  std::map<std::string, int> of_host;
  int most = 0;
  for (const Unknown& each : unknown_) most = std::max(most, ++of_host[each.host]);
  return absl::c_find_if(unknown_, [&](const Unknown& each) { return of_host[each.host] == most; });
}

bool ConnectionGate::LetsIn(const std::string& host, absl::Time now) {
  const int open = static_cast<int>(known_.size() + unknown_.size());
  if (open < limits_.connections() && !IsShunned(host, now) && !IsTooFast(host, now)) return true;
  ++counts_.turned_away;
  return false;
}

std::optional<int> ConnectionGate::Arrive(int connection, const std::string& host, absl::Time now) {
  std::optional<int> pushed_out;
  if (static_cast<int>(unknown_.size()) >= limits_.handshakes()) {
    const auto goes = MostTakenFrom();
    pushed_out = goes->connection;
    unknown_.erase(goes);
    ++counts_.pushed_out;
  }
  unknown_.push_back({connection, host, now});
  recent_.emplace_back(now, host);
  ++recent_of_[host];
  ++counts_.accepted;
  return pushed_out;
}

std::deque<ConnectionGate::Unknown>::iterator ConnectionGate::FindUnknown(int connection) {
  return absl::c_find_if(unknown_,
                         [&](const Unknown& each) { return each.connection == connection; });
}

void ConnectionGate::BecomeKnown(int connection) {
  const auto found = FindUnknown(connection);
  if (found == unknown_.end()) return;
  known_.emplace(connection, found->host);
  unknown_.erase(found);
}

void ConnectionGate::End(int connection) {
  const auto found = FindUnknown(connection);
  if (found != unknown_.end()) unknown_.erase(found);
  known_.erase(connection);
}

void ConnectionGate::Shun(int connection, absl::Time now) {
  const auto known = known_.find(connection);
  const auto unknown = FindUnknown(connection);
  if (known != known_.end()) {
    shunned_until_[known->second] = now + kShunned;
  } else if (unknown != unknown_.end()) {
    shunned_until_[unknown->host] = now + kShunned;
  }
}

bool ConnectionGate::IsShunned(const std::string& host, absl::Time now) {
  std::erase_if(shunned_until_, [&](const auto& each) { return each.second <= now; });
  return shunned_until_.contains(host);
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
  counts.open = known_.size() + unknown_.size();
  counts.unknown = unknown_.size();
  return counts;
}

}  // namespace evenshard
