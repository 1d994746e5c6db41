#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_LINK_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_LINK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/config.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/view.pb.h"
#include "worker/exchange/core/exchange_kind.h"

namespace evenshard {

// How long a slot may be out of reach before the worker's exchange fails.
struct SlotPatience {
  // That of the config. `exchange`: ExchangeRound::limit().
  static SlotPatience Of(const ClusterConfig& config, bool has_views, absl::Duration exchange);

  bool has_views = false;
  absl::Duration startup;    // without views, until the worker has joined
  absl::Duration reconnect;  // without views, after that; 0: it does not reconnect
  absl::Duration exchange;   // with views
  absl::Duration quiet;      // with views, before the worker tells the coordinator

  bool reconnects() const { return has_views || reconnect > absl::ZeroDuration(); }
};

// A worker's link to a slot, without the network: where the slot is, which attempt to connect is
// current, when the next one begins, and when the slot has been missed for too long. ExchangeCore
// acts on it. `now` is the time of the call. Not thread-safe.
class SlotLink {
 public:
  // `patience` must outlive the link.
  SlotLink(int slot, const SlotPatience* patience);

  // "shard 1 (10.0.0.2:50051)", with the address at which the slot is, or was last.
  std::string name() const;
  const std::string& address() const { return primary_.address(); }
  bool is_connected() const { return is_connected_; }
  bool is_attempting() const { return is_attempting_; }
  // Whether it has been connected since the last Forget, and the start_iteration of that join.
  bool has_joined() const { return has_joined_; }
  uint64_t start_iteration() const { return start_iteration_; }
  AssignmentCounts assignments() const { return assignments_; }  // before start_iteration

  // Sets where the slot is. REQUIRES: it is neither connected nor attempting.
  void MoveTo(const ProcessId& primary);
  // No process holds the slot. It is not missed: the coordinator waits for a process for it.
  void MoveNowhere();
  bool IsAt(const ProcessId& primary) const;
  // Whether the slot has an address, and neither a connection nor an attempt.
  bool IsIdle() const { return is_somewhere_ && !is_connected_ && !is_attempting_; }

  // Begins an attempt at the time `at`, in place of any connection or earlier attempt. Returns its
  // number, from 1.
  uint64_t Begin(absl::Time at, absl::Time now);
  // Whether an event of the attempt, or of the connection that it has become, still counts.
  bool IsCurrent(uint64_t attempt) const {
    return attempt == attempt_ && (is_attempting_ || is_connected_);
  }
  // The attempt has succeeded. Errors: FAILED_PRECONDITION if the shard has lost its state.
  absl::Status Accept(const JoinResponse& response, absl::Time now);
  // The attempt or the connection has ended. Returns the pause before the next attempt; `answered`
  // means that the shard has answered a push. Errors: `status`, if no attempt should follow.
  absl::StatusOr<absl::Duration> Break(const absl::Status& status, bool answered);
  // Lets the next attempt begin without a pause.
  void ForgetPause() { pause_ = absl::ZeroDuration(); }
  // Ends the connection or the attempt. Returns whether there was one.
  bool Drop(absl::Time now);
  // Forgets everything, also where the slot is. REQUIRES: it is neither connected nor attempting.
  void Forget();

  // With views: whether the slot has been out of reach for so long that the coordinator should
  // know.
  bool IsUnreachable(absl::Time now) const;
  // Returns an error that names the slot if it has been missed for too long.
  absl::Status Check(absl::Time now) const;
  // Whether the attempt takes so long that the network may have lost it, and may be replaced.
  bool IsStale(absl::Time now) const;

 private:
  const int slot_;
  const SlotPatience& patience_;

  ProcessId primary_;  // without views only its address is set
  bool is_somewhere_ = false;
  bool is_attempting_ = false;
  bool is_connected_ = false;
  bool has_joined_ = false;
  uint64_t attempt_ = 0;
  absl::Time attempt_begun_;
  absl::Time missed_since_ = absl::InfiniteFuture();
  absl::Duration pause_;
  absl::Status lost_;    // why the last connection has ended
  absl::Status reason_;  // why the last attempt has ended
  std::optional<uint64_t> history_;
  uint64_t start_iteration_ = 0;
  AssignmentCounts assignments_;
};

// Whether to reconnect after a connection has ended with `status` (see ExchangeCore).
bool IsPassing(const absl::Status& status, bool has_joined);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_LINK_H_
