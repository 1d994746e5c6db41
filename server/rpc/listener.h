#ifndef EVENSHARD_SERVER_RPC_LISTENER_H_
#define EVENSHARD_SERVER_RPC_LISTENER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/rpc/unix_listener.h"

namespace evenshard {

// A gRPC server that listens at an address of the config: on TCP or at a unix socket.
class Listener {
 public:
  // Starts the server of `builder`, which has its services and options. `name` stands in errors:
  // "shard 3". Errors: UNAVAILABLE if nobody can listen on the address.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(grpc::ServerBuilder* builder,
                                                         const std::string& address,
                                                         absl::string_view name);

  // The bound port, which differs from a port 0 of the address, or 0 for a unix socket.
  int port() const { return port_; }

  // Ends accepting connections at a unix socket.
  void StopAccepting() { unix_listener_.reset(); }
  // Ends the calls that have not ended by then, and the server.
  void Shutdown(absl::Time deadline);

 private:
  Listener() = default;

  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<UnixListener> unix_listener_;  // null on TCP
  int port_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_LISTENER_H_
