#include "common/net/listener.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/security/credentials.h"
#include "common/security/refusal_log.h"
#include "common/security/rights.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/server_interceptor.h"

namespace evenshard {
namespace {

// Tells a TCP listener whose calls were allowed. Calls are not intercepted: gRPC asks for an
// interceptor at the beginning of each, and goes on without.
class Introduction final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Introduction(TcpListener* listener, Security security)
      : listener_(listener), security_(std::move(security)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    grpc::ServerContextBase& context = *call->server_context();
    // gRPC's own answer to a method that nobody offers may have no call yet.
    if (context.c_call() == nullptr) return nullptr;
    const Identity caller = CallerOf(context, security_);
    listener_->BecomeKnown(context.peer(), caller.Has(Role::kWorker) || caller.Has(Role::kShard));
    return nullptr;
  }

 private:
  TcpListener* const listener_;
  const Security security_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(grpc::ServerBuilder* builder,
                                                          const std::string& address,
                                                          const ClusterConfig& config,
                                                          absl::string_view name) {
  const auto cannot = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat(name, " cannot listen on ", address, ": ", why));
  };
  const auto credentials = ServerCredentialsFor(address, config.security());
  if (!credentials.ok()) {
    return absl::Status(
        credentials.status().code(),
        absl::StrCat(name, " does not listen on ", address, ": ", credentials.status().message()));
  }
  LimitRefusalLines(config.limits().strangers().log_lines());
  std::unique_ptr<Listener> listener(new Listener());
  if (absl::Status listens = listener->ListenAt(address, config); !listens.ok()) {
    return cannot(listens.message());
  }
  grpc::EnableDefaultHealthCheckService(true);
  listener->acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, *credentials);
  if (listener->tcp_ != nullptr) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> calls;
    calls.push_back(std::make_unique<Introduction>(listener->tcp_.get(), config.security()));
    builder->experimental().SetInterceptorCreators(std::move(calls));
  }
  listener->grpc_server_ = builder->BuildAndStart();
  if (listener->grpc_server_ == nullptr) return cannot("gRPC's server does not start");
  const Listener* const started = listener.get();
  if (listener->tcp_ != nullptr) {
    listener->tcp_->Start(
        [started](int listening, int connection) { started->HandOver(listening, connection); });
  } else {
    listener->accepting_ = std::thread([started] { started->AcceptAll(); });
  }
  return listener;
}

absl::Status Listener::ListenAt(const std::string& address, const ClusterConfig& config) {
  if (const std::optional<std::string> path = UnixPath(address); path.has_value()) {
    ASSIGN_OR_RETURN(UnixListeningSocket socket, UnixListeningSocket::Listen(*path));
    unix_socket_.emplace(std::move(socket));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(tcp_, TcpListener::Listen(address, StrangersOf(config)));
  return absl::OkStatus();
}

int64_t Listener::FilesFor(int64_t connections, const std::string& address,
                           const ClusterConfig& config) {
  if (UnixPath(address).has_value()) return connections;
  // TcpListener has a copy of each, and strangers have some.
  return 2 * (connections + StrangersOf(config).handshakes());
}

Listener::~Listener() { StopAccepting(); }

void Listener::AcceptAll() const {
  while (true) {
    const absl::StatusOr<int> connection = unix_socket_->Accept();
    if (!connection.ok()) return;
    HandOver(unix_socket_->fd(), *connection);
  }
}

void Listener::HandOver(int listening, int connection) const {
  Acceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listening;
  parameters.fd = connection;
  acceptor_->HandleNewConnection(&parameters);
}

ConnectionGate::Counts Listener::connections() const {
  return tcp_ == nullptr ? ConnectionGate::Counts() : tcp_->counts();
}

void Listener::StopAccepting() {
  if (tcp_ != nullptr) tcp_->Stop();
  if (accepting_.joinable()) {
    unix_socket_->Stop();
    accepting_.join();
    unix_socket_.reset();
  }
  acceptor_.reset();
}

void Listener::Shutdown(absl::Time deadline) {
  StopAccepting();
  grpc_server_->Shutdown(absl::ToChronoTime(deadline));
  grpc_server_->Wait();
}

}  // namespace evenshard
