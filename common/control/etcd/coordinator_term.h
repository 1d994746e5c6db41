#ifndef EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_TERM_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_TERM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/wakeup.h"
#include "common/control/etcd/coordinator_checkpoints.h"
#include "common/control/etcd/etcd_client.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_lease.h"
#include "common/control/view/view_coordinator.h"
#include "proto/etcd/kv.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// One term of an elected coordinator: from the moment at which its key in etcd was created until it
// is deposed. It makes a ViewCoordinator of the last view that etcd has, tells it which processes
// have a key, and publishes its views. Each change that it makes holds only while the coordinator's
// key is the one that began the term, so that a coordinator that does not know yet that it is
// deposed changes nothing. Used by one thread, except for the listeners of its watch.
class CoordinatorTerm {
 public:
  struct Options {
    EtcdClient* client = nullptr;  // these must outlive the term
    const Clock* clock = nullptr;
    const EtcdLease* lease = nullptr;  // of the coordinator's key
    EtcdKeys keys;
    int64_t created = 0;  // the revision at which the coordinator's key was created
    ViewCoordinator::Settings settings;
    CoordinatorCheckpoints* checkpoints =
        nullptr;  // null without checkpoints; must outlive the term
    std::function<void(const RecoveryEvent& event)> on_event;
  };

  explicit CoordinatorTerm(const Options& options);

  // Makes views until the term is over. Blocks. Returns why it is over: ABORTED if another
  // coordinator has taken over or the lease has ended, CANCELLED if `stop` is requested, otherwise
  // an error of etcd or of the checkpoints, after which the same coordinator may begin another
  // term.
  absl::Status Run(const std::stop_token& stop);

 private:
  // What the watch has brought: all processes' keys, or one change.
  struct News {
    bool is_all = false;
    std::vector<mvccpb::KeyValue> keys = {};
    mvccpb::Event event = {};
  };

  absl::StatusOr<etcdserverpb::RangeResponse> ReadAll(const std::string& prefix,
                                                      const std::stop_token& stop) const;
  // Reads the last view, and how the run has ended.
  absl::Status Begin(const std::stop_token& stop);
  // Errors: FAILED_PRECONDITION if the processes of the last view have another config.
  absl::Status CheckConfig(const std::stop_token& stop);
  void Remember(const ProcessState& state);
  void Add(News news);

  void TakeAll(const std::vector<mvccpb::KeyValue>& keys);
  void TakePut(const mvccpb::KeyValue& key);
  void TakeDelete(const std::string& key);

  // Publish what has changed.
  absl::Status PublishView(const std::stop_token& stop);
  absl::Status PublishEnd(const absl::Status& outcome, const std::stop_token& stop);
  absl::Status PublishRefusals(const std::stop_token& stop);
  // Makes a change that holds only in this term.
  absl::StatusOr<etcdserverpb::TxnResponse> Change(etcdserverpb::TxnRequest request,
                                                   const std::stop_token& stop);

  const Options options_;

  // The thread's.
  std::optional<ViewCoordinator> coordinator_;
  uint64_t published_ = 0;     // the number of the view that etcd has
  int64_t view_revision_ = 0;  // at which it was put, 0 if there is none
  bool end_published_ = false;
  // The starts of processes that have a key, by key.
  std::map<std::string, ViewCoordinator::Process> processes_;
  std::map<std::string, std::string> refusals_;  // keys and values yet to be put

  bool has_all_ = false;  // whether the first news has come

  Wakeup wakeup_;
  absl::Mutex mutex_;
  std::vector<News> news_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_TERM_H_
