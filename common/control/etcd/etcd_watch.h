#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_WATCH_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_machine.h"
#include "proto/etcd/kv.pb.h"
#include "proto/etcd/rpc.pb.h"

namespace evenshard {

// Follows the keys that begin with a prefix until it is destroyed. It goes on through lost
// connections, silent or leaderless members and restarts of etcd, each time from the revision that
// it has reached. If etcd has compacted the changes since then, or does not know that revision, it
// reads all keys anew.
class EtcdWatch final : private EtcdMachine {
 public:
  // Called by the watch's runner.
  struct Listener {
    // All keys with the prefix, in place of everything heard before: at first, and when changes
    // were missed.
    std::function<void(const std::vector<mvccpb::KeyValue>& keys)> on_keys;
    // A change, in the order of etcd's revisions.
    std::function<void(const mvccpb::Event& event)> on_event;
  };

  struct Options {
    EtcdRuntime* etcd = nullptr;  // must outlive the watch
    std::string prefix;           // not empty
  };

  EtcdWatch(const Options& options, Listener listener);
  ~EtcdWatch() override;

 private:
  // Reads all keys, unless the watch can go on from where it was, opens a stream and follows it.
  Step Next(absl::Time now) override;
  void Answered(const EtcdAnswer& answer, absl::Time now) override;
  // Takes what the stream has brought, and returns when to look again at the latest. Errors: why it
  // has ended.
  absl::StatusOr<absl::Time> Follow(absl::Time now);
  absl::Status Take(const etcdserverpb::WatchResponse& response);
  // Tries again after a while.
  void Pause(const absl::Status& ended, absl::Time now);

  // Constant after construction.
  const Options options_;
  const Listener listener_;
  const std::string end_;  // after all keys with the prefix

  const std::unique_ptr<EtcdRunner> runner_;

  // The runner's.
  int64_t next_revision_ = 0;  // of the next change; 0: all keys have to be read
  absl::Duration pause_;       // before the next attempt
  absl::Time paused_until_ = absl::InfinitePast();
  std::unique_ptr<EtcdWatchStream> stream_;  // null between two attempts
  absl::Time heard_;                         // when something last came on the stream
  bool asked_ = false;                       // for a sign of life since then
};

// Returns the first key after all those that begin with `prefix`, which must not be empty or end
// with the byte 255.
std::string EndOfPrefix(std::string prefix);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_WATCH_H_
