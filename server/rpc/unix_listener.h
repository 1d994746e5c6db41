#ifndef EVENSHARD_SERVER_RPC_UNIX_LISTENER_H_
#define EVENSHARD_SERVER_RPC_UNIX_LISTENER_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/net/unix_socket.h"
#include "grpcpp/server_builder.h"

namespace evenshard {

// Accepts the connections to a unix socket and hands them to a gRPC server.
// common/net/unix_socket.h says why gRPC does not accept them itself. Owns the socket, its file and
// the accepting thread.
class UnixListener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // REQUIRES: the gRPC server of `acceptor` is running. Errors: those of
  // UnixListeningSocket::Listen.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Start(const std::string& path,
                                                             std::unique_ptr<Acceptor> acceptor);

  // Removes the socket's file and accepts no more connections. Those that were accepted stay open.
  ~UnixListener();

 private:
  UnixListener(UnixListeningSocket socket, std::unique_ptr<Acceptor> acceptor);

  void AcceptAll();

  const UnixListeningSocket socket_;
  const std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_UNIX_LISTENER_H_
