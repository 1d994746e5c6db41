#ifndef EVENSHARD_COMMON_NET_LISTENER_H_
#define EVENSHARD_COMMON_NET_LISTENER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/connection_gate.h"
#include "common/net/tcp_listener.h"
#include "common/net/unix_socket.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/config.pb.h"

namespace evenshard {

// A gRPC server that listens at an address of the config: on TCP, where limits.strangers says who
// gets a connection, or at a unix socket, of which it owns the file and the accepting thread.
class Listener {
 public:
  // Calls StopAccepting.
  ~Listener();

  // Starts the server of `builder`, which has its services and options, at an address of `config`.
  // `name` stands in errors: "shard 3". Errors: UNAVAILABLE if nobody can listen on the address;
  // those of ServerCredentialsFor.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(grpc::ServerBuilder* builder,
                                                         const std::string& address,
                                                         const ClusterConfig& config,
                                                         absl::string_view name);

  // How many files a process needs for `connections` to an address at which it listens.
  static int64_t FilesFor(int64_t connections, const std::string& address,
                          const ClusterConfig& config);

  // The bound port, which differs from a port 0 of the address, or 0 for a unix socket.
  int port() const { return tcp_ == nullptr ? 0 : tcp_->port(); }

  // The connections on TCP. All are 0 for a unix socket, to which only this user can connect.
  ConnectionGate::Counts connections() const;

  // Removes a unix socket's file and accepts no more connections there. Those that were accepted
  // stay open. Idempotent.
  void StopAccepting();
  // Ends the calls that have not ended by then, and the server.
  void Shutdown(absl::Time deadline);

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  Listener() = default;
  absl::Status ListenAt(const std::string& address, const ClusterConfig& config);
  void AcceptAll() const;
  void HandOver(int listening, int connection) const;

  // One of the two. Their headers say why gRPC does not accept the connections itself.
  std::unique_ptr<TcpListener> tcp_;
  std::optional<UnixListeningSocket> unix_socket_;
  std::thread accepting_;  // at the unix socket
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_LISTENER_H_
