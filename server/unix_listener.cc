#include "server/unix_listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "common/unix_socket.h"

namespace ps {

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Start(
    const std::string& path, std::unique_ptr<Acceptor> acceptor) {
  const absl::StatusOr<int> listener = ListenUnix(path);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<UnixListener>(new UnixListener(path, *listener, std::move(acceptor)));
}

UnixListener::UnixListener(std::string path, int listener, std::unique_ptr<Acceptor> acceptor)
    : path_(std::move(path)),
      listener_(listener),
      acceptor_(std::move(acceptor)),
      thread_([this] { AcceptAll(); }) {}

UnixListener::~UnixListener() {
  unlink(path_.c_str());
  shutdown(listener_, SHUT_RDWR);  // ends accept
  thread_.join();
  close(listener_);
}

void UnixListener::AcceptAll() {
  while (true) {
    const absl::StatusOr<int> connection = AcceptUnix(listener_);
    if (!connection.ok()) return;
    Acceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listener_;
    parameters.fd = *connection;
    acceptor_->HandleNewConnection(&parameters);
  }
}

}  // namespace ps
