#include "server/rpc/unix_listener.h"

#include <utility>

#include "common/base/status_macros.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Start(
    const std::string& path, std::unique_ptr<Acceptor> acceptor) {
  ASSIGN_OR_RETURN(UnixListeningSocket socket, UnixListeningSocket::Listen(path));
  return std::unique_ptr<UnixListener>(new UnixListener(std::move(socket), std::move(acceptor)));
}

UnixListener::UnixListener(UnixListeningSocket socket, std::unique_ptr<Acceptor> acceptor)
    : socket_(std::move(socket)),
      acceptor_(std::move(acceptor)),
      thread_([this] { AcceptAll(); }) {}

UnixListener::~UnixListener() {
  socket_.Stop();
  thread_.join();
}

void UnixListener::AcceptAll() {
  while (true) {
    const absl::StatusOr<int> connection = socket_.Accept();
    if (!connection.ok()) return;
    Acceptor::NewConnectionParameters parameters;
    parameters.listener_fd = socket_.fd();
    parameters.fd = *connection;
    acceptor_->HandleNewConnection(&parameters);
  }
}

}  // namespace evenshard
