#include "common/net/listener.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(grpc::ServerBuilder* builder,
                                                          const std::string& address,
                                                          const Security& security,
                                                          absl::string_view name) {
  const auto cannot = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat(name, " cannot listen on ", address, ": ", why));
  };
  std::unique_ptr<Listener> listener(new Listener());
  const std::optional<std::string> unix_path = UnixPath(address);
  if (unix_path.has_value()) {
    listener->acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
  } else {
    const auto credentials = ServerCredentialsFor(address, security);
    if (!credentials.ok()) {
      return absl::Status(credentials.status().code(),
                          absl::StrCat(name, " does not listen on ", address, ": ",
                                       credentials.status().message()));
    }
    builder->AddListeningPort(address, *credentials, &listener->port_);
  }
  listener->grpc_server_ = builder->BuildAndStart();
  if (listener->grpc_server_ == nullptr) {
    return cannot("is it in use, or not an address of this host?");
  }
  if (!unix_path.has_value()) return listener;
  absl::StatusOr<UnixListeningSocket> socket = UnixListeningSocket::Listen(*unix_path);
  if (!socket.ok()) return cannot(socket.status().message());
  listener->unix_socket_.emplace(*std::move(socket));
  listener->accepting_ = std::thread([started = listener.get()] { started->AcceptAll(); });
  return listener;
}

Listener::~Listener() { StopAccepting(); }

void Listener::AcceptAll() const {
  while (true) {
    const absl::StatusOr<int> connection = unix_socket_->Accept();
    if (!connection.ok()) return;
    Acceptor::NewConnectionParameters parameters;
    parameters.listener_fd = unix_socket_->fd();
    parameters.fd = *connection;
    acceptor_->HandleNewConnection(&parameters);
  }
}

void Listener::StopAccepting() {
  if (!accepting_.joinable()) return;
  unix_socket_->Stop();
  accepting_.join();
  unix_socket_.reset();
  acceptor_.reset();
}

void Listener::Shutdown(absl::Time deadline) {
  StopAccepting();
  grpc_server_->Shutdown(absl::ToChronoTime(deadline));
  grpc_server_->Wait();
}

}  // namespace evenshard
