#ifndef PS_SERVER_SERVER_H_
#define PS_SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "grpcpp/server.h"
#include "server/admin_service.h"
#include "server/parameter_service.h"
#include "server/shard.h"
#include "server/unix_listener.h"

namespace ps {

// A running parameter-server shard. Owns the shard, its services (exchange, statistics,
// grpc.health.v1, reflection) on one port, and the thread that watches for updates, streams and
// Pulls that wait too long. Thread-safe except for Shutdown, which only one thread may call.
//
//   absl::Status ServeUntil(const std::string& config_path, std::stop_token stop) {
//     ASSIGN_OR_RETURN(const Config config, Config::Load(config_path, /*overrides=*/{}));
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
    const Config* config = nullptr;  // must outlive the server
    int shard = 0;
    const Clock* clock = nullptr;  // must outlive the server
    // Called when the Shutdown RPC asks for it; must not block.
    std::function<void()> request_shutdown = [] {};
    // Called from time to time while no gradients and parameters come and go, to give memory that
    // is free back to the system; an allocator by itself may keep what a burst of calls took.
    std::function<void()> release_memory = [] {};
  };

  // Listens when it returns. Errors: OUT_OF_RANGE for the shard; RESOURCE_EXHAUSTED for
  // its memory; UNAVAILABLE where the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options);

  // Shuts down.
  ~Server();

  // The bound port (config ports may be 0); 0 on a unix socket.
  int port() const { return port_; }
  // The config's address with the bound port.
  std::string address() const;
  Shard& shard() { return *shard_; }

  // Tells the workers, ends every RPC within limits.shutdown_seconds, and joins the
  // threads. Idempotent.
  void Shutdown();

 private:
  explicit Server(const Options& options) : options_(options) {}

  // Looks after what waits, until `stop`.
  void Watch(const std::stop_token& stop);

  const Options options_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<ParameterService> parameter_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<UnixListener> unix_listener_;  // null on TCP
  int port_ = 0;
  bool is_shut_down_ = false;
  std::jthread watcher_;
};

}  // namespace ps

#endif  // PS_SERVER_SERVER_H_
