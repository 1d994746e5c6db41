#ifndef PS_SERVER_UNIX_LISTENER_H_
#define PS_SERVER_UNIX_LISTENER_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/net/unix_socket.h"
#include "grpcpp/server_builder.h"

namespace ps {

// Hands the connections to a unix socket to a gRPC server; see common/net/unix_socket.h for why it
// does not accept them itself. Owns the socket, its file and the thread that accepts.
class UnixListener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // `acceptor` belongs to a server that is running. Errors: those of
  // UnixListeningSocket::Listen.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Start(const std::string& path,
                                                             std::unique_ptr<Acceptor> acceptor);

  // Accepts no more; connections that were accepted live on. Removes its file.
  ~UnixListener();

 private:
  UnixListener(UnixListeningSocket socket, std::unique_ptr<Acceptor> acceptor);

  void AcceptAll();

  const UnixListeningSocket socket_;
  const std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

}  // namespace ps

#endif  // PS_SERVER_UNIX_LISTENER_H_
