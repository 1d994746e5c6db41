#ifndef EVENSHARD_SERVER_SERVER_H_
#define EVENSHARD_SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/control/view/view_link.h"
#include "common/net/listener.h"
#include "common/placement/planned_config.h"
#include "server/recovery/slot_host.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/parameter_service.h"
#include "server/rpc/peers/agreement_client.h"
#include "server/rpc/peers/agreement_service.h"
#include "server/rpc/peers/replica_client.h"
#include "server/rpc/peers/replication_service.h"
#include "server/shard/shard.h"

namespace evenshard {

// A running parameter-server shard, whose model is known. It owns the shard, its services on one
// port (exchange, statistics, grpc.health.v1 and reflection), and the thread that watches for
// updates, streams and Pulls that wait for too long. Thread-safe, except that only one thread may
// call Shutdown.
//
//   absl::Status ServeUntil(const std::string& config_path, std::stop_token stop) {
//     ASSIGN_OR_RETURN(const PlannedConfig config, PlannedConfig::Load(config_path));
//     const RealClock clock;
//     ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
//                      Server::Start({.config = &config, .shard = 0, .clock = &clock}));
//     clock.SleepUntil(absl::InfiniteFuture(), stop);
//     server->Shutdown();
//     return absl::OkStatus();
//   }
class Server {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the server
    int shard = 0;                 // the index of this process: a shard's, or a spare's after them
    uint64_t incarnation = 0;      // of this start, if it has been announced; 0 for a new one
    const Clock* clock = nullptr;  // must outlive the server
    // Follows the run's views; null without views. It calls the server, so it must be destroyed
    // before the server, and after Shutdown.
    ViewLink* view_link = nullptr;
    // Without views: what the run begins from; see SlotHost::Options.
    View start = {};
    // Called when a Shutdown RPC comes. Must not block.
    std::function<void()> request_shutdown = [] {};
    // Called from time to time while no gradients and parameters come and go. It should return free
    // memory to the system, since an allocator may keep what a burst of calls has taken.
    std::function<void()> release_memory = [] {};
  };

  // Starts a server, which listens when this returns. Errors: OUT_OF_RANGE if the config has no
  // such process; INVALID_ARGUMENT if other shards must find this one and its port is 0;
  // RESOURCE_EXHAUSTED if there is not enough memory; UNAVAILABLE if the shard cannot
  // listen on its address; those of reading a checkpoint.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options);

  // Calls Shutdown.
  ~Server();

  // Returns the bound port, which differs from a config's port 0, or 0 for a unix socket.
  int port() const { return listener_->port(); }
  // Returns the config's address with the bound port.
  std::string address() const;
  const SlotHost& host() const { return *host_; }
  // The shard of the process's own slot. REQUIRES: there are no views.
  Shard& shard() { return *host_->Primary(options_.shard); }

  // Why no view will come any more, or OK.
  absl::Status views_ended() const;

  // Ends the workers' streams with the reason, and within limits.shutdown_seconds every other RPC
  // and the checkpoints that are being written. Joins the threads. Idempotent.
  void Shutdown();

 private:
  explicit Server(const Options& options) : options_(options) {}

  absl::Status StartHost();
  absl::Status CheckPorts() const;
  absl::Status Listen();
  void FollowViews();
  // Announces the process's present state to the coordinator.
  void Announce();
  void Watch();
  // Calls `use` for every shard that the process has now.
  void ForEachShard(absl::FunctionRef<void(Shard&)> use);

  const Options options_;
  RealStorage storage_;
  std::unique_ptr<ReplicaClient> replica_client_;      // null without replicas
  std::unique_ptr<AgreementClient> agreement_client_;  // null unless slots agree on something
  std::unique_ptr<SlotHost> host_;
  std::unique_ptr<ParameterService> parameter_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<ReplicationService> replication_service_;
  std::unique_ptr<AgreementService> agreement_service_;
  std::unique_ptr<Listener> listener_;
  mutable absl::Mutex views_mutex_;
  absl::Status views_ended_ ABSL_GUARDED_BY(views_mutex_);
  std::stop_source stopping_;
  // Held from the making of a state until it is announced, so that an older state never follows a
  // newer one.
  absl::Mutex announce_mutex_;
  std::thread watcher_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SERVER_H_
