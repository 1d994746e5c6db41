#include "server/rpc/listener.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/unix_socket.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(grpc::ServerBuilder* builder,
                                                          const std::string& address,
                                                          absl::string_view name) {
  const auto cannot = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat(name, " cannot listen on ", address, ": ", why));
  };
  std::unique_ptr<Listener> listener(new Listener());
  const std::optional<std::string> unix_path = UnixPath(address);
  std::unique_ptr<UnixListener::Acceptor> unix_acceptor;
  if (unix_path.has_value()) {
    unix_acceptor = builder->experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
  } else {
    builder->AddListeningPort(address, grpc::InsecureServerCredentials(), &listener->port_);
  }
  listener->grpc_server_ = builder->BuildAndStart();
  if (listener->grpc_server_ == nullptr) {
    return cannot("is it in use, or not an address of this host?");
  }
  if (!unix_path.has_value()) return listener;
  absl::StatusOr<std::unique_ptr<UnixListener>> accepting =
      UnixListener::Start(*unix_path, std::move(unix_acceptor));
  if (!accepting.ok()) return cannot(accepting.status().message());
  listener->unix_listener_ = *std::move(accepting);
  return listener;
}

void Listener::Shutdown(absl::Time deadline) {
  StopAccepting();
  grpc_server_->Shutdown(absl::ToChronoTime(deadline));
  grpc_server_->Wait();
}

}  // namespace evenshard
