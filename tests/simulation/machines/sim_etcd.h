#ifndef EVENSHARD_TESTS_SIMULATION_MACHINES_SIM_ETCD_H_
#define EVENSHARD_TESTS_SIMULATION_MACHINES_SIM_ETCD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_machine.h"
#include "proto/etcd/kv.pb.h"
#include "proto/etcd/rpc.pb.h"
#include "tests/simulation/machines/world.h"

namespace evenshard {

// What etcd keeps and answers, as its documentation says: keys with revisions, transactions,
// leases, and watches over a history that is compacted. The network, and what happens to etcd, are
// the caller's. The times are those of etcd's clock. Used by one thread.
class SimEtcd {
 public:
  // A watch hears of changes until it is cancelled.
  using WatchId = int;
  using Send = std::function<void(const etcdserverpb::WatchResponse& response)>;

  // `node` is who asks. It holds the leases that it is granted.
  EtcdAnswer Answer(const EtcdRequest& request, NodeRef node, absl::Time now);
  // Ends a lease, which deletes its keys.
  void Revoke(int64_t lease);

  // `send` is called at once, and with each change.
  WatchId Watch(const etcdserverpb::WatchCreateRequest& request, Send send);
  void Cancel(WatchId watch) { watches_.erase(watch); }
  void RequestProgress(WatchId watch);

  // Ends the leases that have run out. Called now and then.
  void EndLeases(absl::Time now);
  // Another leader keeps each lease for its whole TTL from now on.
  void ChangeLeader(absl::Time now);
  // etcd is started again: the leader is another one, and there are no watches.
  void Restart(absl::Time now);
  // Forgets changes, but for what the keys are now.
  void Compact();
  // Deletes all keys, as who begins another run of the same name does.
  void Clear();

  // Null if there is none.
  const mvccpb::KeyValue* Find(const std::string& key) const;
  // Who holds the lease of a key. Nothing if there is no such key.
  std::optional<NodeRef> HolderOf(const std::string& key) const;

  // Called before a key is put: planted faults change what it says.
  std::function<void(const std::string& key, std::string* value)> on_put = [](const std::string&,
                                                                              std::string*) {};
  // Called when a lease has run out, with each of its keys.
  std::function<void(const std::string& key, NodeRef holder)> on_loss = [](const std::string&,
                                                                           NodeRef) {};

 private:
  struct Lease {
    NodeRef holder;
    absl::Duration ttl;
    absl::Time ends;
  };
  struct Watcher {
    std::string key;
    std::string end;
    Send send;
  };

  EtcdAnswer AnswerTo(const etcdserverpb::RangeRequest& request, NodeRef node, absl::Time now);
  EtcdAnswer AnswerTo(const etcdserverpb::TxnRequest& request, NodeRef node, absl::Time now);
  EtcdAnswer AnswerTo(const EtcdLeaseRequest& request, NodeRef node, absl::Time now);
  bool Holds(const etcdserverpb::Compare& compare) const;
  etcdserverpb::RangeResponse Range(const etcdserverpb::RangeRequest& request) const;
  std::vector<std::string> KeysOf(int64_t lease) const;
  // Part of the change that makes the next revision.
  void Put(const etcdserverpb::PutRequest& request);
  void Delete(const std::string& key);
  // Ends that change, if there was one.
  void Commit();

  int64_t revision_ = 1;
  int64_t compacted_ = 0;  // the changes up to this revision are forgotten
  std::map<std::string, mvccpb::KeyValue> keys_;
  std::vector<mvccpb::Event> change_;   // the one that is being made
  std::vector<mvccpb::Event> history_;  // in the order of their revisions
  int64_t last_lease_ = 0;
  std::map<int64_t, Lease> leases_;
  WatchId last_watch_ = 0;
  std::map<WatchId, Watcher> watches_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_MACHINES_SIM_ETCD_H_
