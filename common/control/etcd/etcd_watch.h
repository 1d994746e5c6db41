#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_WATCH_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_WATCH_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/wakeup.h"
#include "common/control/etcd/etcd_client.h"
#include "proto/etcd/kv.pb.h"

namespace evenshard {

// Follows the keys that begin with a prefix, by a thread of its own, until it is destroyed. It goes
// on through lost connections, silent or leaderless members and restarts of etcd, each time from
// the revision that it has reached. If etcd has compacted the changes since then, or does not know
// that revision, it reads all keys anew.
class EtcdWatch {
 public:
  // Called by the watch's thread.
  struct Listener {
    // All keys with the prefix, in place of everything heard before: at first, and when changes
    // were missed.
    std::function<void(const std::vector<mvccpb::KeyValue>& keys)> on_keys;
    // A change, in the order of etcd's revisions.
    std::function<void(const mvccpb::Event& event)> on_event;
  };

  struct Options {
    EtcdClient* client = nullptr;  // must outlive the watch
    const Clock* clock = nullptr;  // must outlive the watch
    std::string prefix;            // not empty
  };

  EtcdWatch(const Options& options, Listener listener);
  ~EtcdWatch();

 private:
  void Run(const std::stop_token& stop);
  // Reads all keys, unless the watch can go on from where it was, and opens one stream, which it
  // follows to its end. Errors: why it has ended; CANCELLED if `stop` is requested.
  absl::Status Follow(const std::stop_token& stop);
  absl::Status ReadAll(const std::stop_token& stop);
  absl::Status Take(const etcdserverpb::WatchResponse& response, EtcdWatchStream* stream);

  // Constant after construction.
  const Options options_;
  const Listener listener_;
  const std::string end_;  // after all keys with the prefix

  Wakeup wakeup_;

  // The thread's.
  int64_t next_revision_ = 0;  // of the next change; 0: all keys have to be read
  absl::Duration pause_;       // before the next attempt

  std::jthread thread_;  // destroyed first, because it uses the other members
};

// Returns the first key after all those that begin with `prefix`, which must not be empty or end
// with the byte 255.
std::string EndOfPrefix(std::string prefix);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_WATCH_H_
