#ifndef EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_TERM_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_TERM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/control/etcd/coordinator_checkpoints.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/control/etcd/etcd_lease.h"
#include "common/control/etcd/etcd_machine.h"
#include "common/control/etcd/etcd_watch.h"
#include "common/control/view/view_coordinator.h"
#include "proto/etcd/kv.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// One term of an elected coordinator: from the moment at which its key in etcd was created until it
// is deposed. It makes a ViewCoordinator of the last view that etcd has, tells it which processes
// have a key, and publishes its views. Each change that it makes holds only while the coordinator's
// key is the one that began the term, so that a coordinator that does not know yet that it is
// deposed changes nothing. A part of EtcdCoordinator's machine: called by its runner, except for
// the listeners of the term's watch.
class CoordinatorTerm {
 public:
  struct Options {
    EtcdRuntime* etcd = nullptr;       // must outlive the term
    std::function<void()> wake;        // has Next called soon; thread-safe
    const EtcdLease* lease = nullptr;  // of the coordinator's key; must outlive the term
    EtcdKeys keys;
    int64_t created = 0;  // the revision at which the coordinator's key was created
    ViewCoordinator::Settings settings;
    CoordinatorCheckpoints* checkpoints =
        nullptr;  // null without checkpoints; must outlive the term
    std::function<void(const RecoveryEvent& event)> on_event;
  };

  explicit CoordinatorTerm(const Options& options);

  // As of EtcdMachine. Errors: why the term is over: ABORTED if another coordinator has taken over,
  // the lease has ended or the coordinator's key was removed, otherwise an error of etcd or of the
  // checkpoints, after which the same coordinator may begin another term.
  absl::StatusOr<EtcdMachine::Step> Next(absl::Time now);
  absl::Status Answered(const EtcdAnswer& answer, absl::Time now);

 private:
  // What the watch has brought: all processes' keys, or one change.
  struct News {
    bool is_all = false;
    std::vector<mvccpb::KeyValue> keys = {};
    mvccpb::Event event = {};
  };

  // A change that holds only in this term, which is asked for until etcd answers.
  struct Change {
    etcdserverpb::TxnRequest request;
    std::function<absl::Status(const etcdserverpb::TxnResponse& response)> done;
  };

  // Takes the last view, and how the run has ended.
  absl::Status TakeLast(const etcdserverpb::RangeResponse& response);
  // Begins to make views. Errors: FAILED_PRECONDITION if the processes of the last view have
  // another config.
  absl::Status Begin(const etcdserverpb::RangeResponse& processes);
  void Remember(const ProcessState& state);
  void Add(News news);

  void TakeNews(absl::Time now);
  void TakeAll(const std::vector<mvccpb::KeyValue>& keys, absl::Time now);
  void TakePut(const mvccpb::KeyValue& key, absl::Time now);
  void TakeDelete(const std::string& key, absl::Time now);

  // What is to be published next, if anything.
  std::optional<Change> NextChange();
  Change PublishView();
  Change PublishRefusal();
  Change PublishEnd();

  const Options options_;

  // The runner's.
  std::optional<View> last_;                    // the view that the term goes on from, once read
  std::optional<ViewCoordinator> coordinator_;  // once the term makes views
  std::optional<Change> change_;                // what is being asked for
  absl::Time paused_until_ = absl::InfinitePast();
  uint64_t published_ = 0;     // the number of the view that etcd has
  int64_t view_revision_ = 0;  // at which it was put, 0 if there is none
  bool end_published_ = false;
  // The starts of processes that have a key, by key.
  std::map<std::string, ViewCoordinator::Process> processes_;
  std::map<std::string, std::string> refusals_;  // keys and values yet to be put

  bool has_all_ = false;  // whether the first news has come

  absl::Mutex mutex_;
  std::vector<News> news_ ABSL_GUARDED_BY(mutex_);

  std::optional<EtcdWatch> watch_;  // destroyed first, because its runner uses the other members
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_TERM_H_
