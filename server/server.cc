#include "server/server.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/unix_socket.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"

namespace ps {

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options) {
  std::unique_ptr<Server> server(new Server(options));
  ASSIGN_OR_RETURN(server->shard_, Shard::Create(options.config, options.shard, options.clock));
  server->parameter_service_ = std::make_unique<ParameterService>(server->shard_.get());
  server->admin_service_ =
      std::make_unique<AdminService>(server->shard_.get(), options.request_shutdown);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetServerOptions(options.config->proto().limits(), &builder);
  const std::string& address = options.config->address(options.shard);
  const std::optional<std::string> unix_path = UnixPath(address);
  std::unique_ptr<UnixListener::Acceptor> unix_acceptor;
  if (unix_path.has_value()) {
    unix_acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
  } else {
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &server->port_);
  }
  builder.RegisterService(server->parameter_service_.get());
  builder.RegisterService(server->admin_service_.get());
  server->grpc_server_ = builder.BuildAndStart();
  if (server->grpc_server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("shard ", options.shard, " cannot listen on ",
                                               address,
                                               ": is it in use, or not an address of this host?"));
  }
  if (unix_path.has_value()) {
    absl::StatusOr<std::unique_ptr<UnixListener>> listener =
        UnixListener::Start(*unix_path, std::move(unix_acceptor));
    if (!listener.ok()) {
      return absl::UnavailableError(absl::StrCat("shard ", options.shard, " cannot listen on ",
                                                 address, ": ", listener.status().message()));
    }
    server->unix_listener_ = *std::move(listener);
  }
  server->watcher_ = std::thread([s = server.get()] { s->Watch(); });
  return server;
}

Server::~Server() { Shutdown(); }

std::string Server::address() const {
  const std::string& configured = options_.config->address(options_.shard);
  if (port_ == 0) return configured;
  return absl::StrCat(configured.substr(0, configured.rfind(':')), ":", port_);
}

void Server::Shutdown() {
  if (!stopping_.request_stop()) return;
  if (watcher_.joinable()) watcher_.join();
  unix_listener_.reset();
  if (grpc_server_ == nullptr) return;
  const absl::Status reason =
      absl::UnavailableError(absl::StrCat("shard ", options_.shard, " is shutting down"));
  shard_->Close(reason);
  parameter_service_->EndStreams(reason);
  // Calls that have not ended by this deadline are cancelled, and the second that is left of
  // limits.shutdown_seconds is for that.
  const double seconds = std::max(options_.config->proto().limits().shutdown_seconds() - 1, 0.1);
  grpc_server_->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(seconds)));
  grpc_server_->Wait();
}

void Server::Watch() {
  // A limit is exceeded by a tenth at most.
  const absl::Duration period =
      absl::Seconds(std::min(options_.config->proto().limits().exchange_seconds() / 10, 1.0));
  uint64_t bytes_before = 0;
  const RealClock clock;  // Abseil's waits with a timeout follow the time of day
  while (clock.SleepUntil(clock.Now() + period, stopping_.get_token())) {
    shard_->CheckWaits();
    parameter_service_->EndWaitingStreams();
    parameter_service_->EndUnreadPulls();
    const uint64_t bytes = shard_->bytes_moved();
    if (std::exchange(bytes_before, bytes) == bytes) options_.release_memory();
  }
}

}  // namespace ps
