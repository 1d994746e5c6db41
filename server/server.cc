#include "server/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/config/asynchrony.h"
#include "common/net/channel_options.h"
#include "common/optimizer/optimizer.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/server_builder.h"
#include "spdlog/spdlog.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options) {
  const bool has_views = options.view_link != nullptr;  // which give spares a role
  const int processes = has_views ? options.config->processes() : options.config->shards();
  if (options.shard < 0 || options.shard >= processes) {
    return absl::OutOfRangeError(absl::StrCat("there is no shard ", options.shard,
                                              ": the config has ", processes, " shards, 0 to ",
                                              processes - 1));
  }
  std::unique_ptr<Server> server(new Server(options));
  RETURN_IF_ERROR(server->StartHost());
  RETURN_IF_ERROR(server->Listen());
  if (const std::string warning = AsynchronyWarning(options.config->proto());
      options.shard == 0 && !warning.empty()) {
    spdlog::warn("{}", warning);
  }
  server->watcher_ = std::thread([s = server.get()] { s->Watch(); });
  if (options.view_link != nullptr) server->FollowViews();
  return server;
}

absl::Status Server::StartHost() {
  const PlannedConfig& config = *options_.config;
  const Recovery& recovery = config.proto().recovery();
  if (recovery.replicas() > 0) {
    replica_client_ = std::make_unique<ReplicaClient>(&config.proto());
  }
  if (config.clips_mean() || config.has_quorum()) {
    RETURN_IF_ERROR(CheckPorts());
    agreement_client_ = std::make_unique<AgreementClient>(&config.proto());
  }
  SlotHost::Options host{.config = &config,
                         .clock = options_.clock,
                         .has_views = options_.view_link != nullptr,
                         .transport = replica_client_.get(),
                         .agreements = agreement_client_.get(),
                         .storage = recovery.has_checkpoint() ? &storage_ : nullptr,
                         .start = options_.start,
                         .on_primary =
                             [this](Shard& shard) {
                               if (parameter_service_ != nullptr) parameter_service_->Serve(shard);
                             },
                         .on_state = [this] { Announce(); }};
  host.self.set_process(options_.shard);
  host.self.set_incarnation(options_.incarnation != 0 ? options_.incarnation : NewIncarnation());
  host.self.set_address(config.process_address(options_.shard));
  if (options_.view_link != nullptr) {
    host.holds_roles = [link = options_.view_link] { return link->HoldsRoles(); };
  }
  ASSIGN_OR_RETURN(std::unique_ptr<SlotHost> started, SlotHost::Start(host));
  {
    absl::MutexLock lock(&announce_mutex_);
    host_ = std::move(started);
  }
  parameter_service_ = std::make_unique<ParameterService>(ParameterService::Options{
      .config = &config, .process = options_.shard, .host = host_.get(), .clock = options_.clock});
  ForEachShard([this](Shard& shard) { parameter_service_->Serve(shard); });
  admin_service_ = std::make_unique<AdminService>(&config, host_.get(), options_.shard,
                                                  options_.request_shutdown);
  replication_service_ =
      std::make_unique<ReplicationService>(host_.get(), &config.proto().security());
  agreement_service_ = std::make_unique<AgreementService>(host_.get(), &config.proto().security());
  return absl::OkStatus();
}

absl::Status Server::CheckPorts() const {
  const PlannedConfig& config = *options_.config;
  if (options_.view_link != nullptr || config.shards() == 1) return absl::OkStatus();
  if (!absl::EndsWith(config.address(0), ":0")) return absl::OkStatus();
  return config.FieldError(
      "shard[0].address",
      absl::StrCat("is \"", config.address(0), "\" with ",
                   config.has_quorum() ? "update.policy QUORUM" : "update.clip_global_norm",
                   ", and the other shards must find it, allowed: a port above 0, or a start by "
                   "launch, which chooses one"));
}

absl::Status Server::Listen() {
  const PlannedConfig& config = *options_.config;
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // A chunk's state goes to a replica in one message, with the optimizer's arrays, of which
  // workers may bring the kind. No kind has more than kMaxSlots, or one for each worker. A
  // correction has a mean square and what each worker was sent, and encoded updates what rounding
  // has left.
  const int corrections =
      CorrectionOf(config.proto()) == Asynchrony::NONE ? 0 : 1 + config.workers();
  const int residuals = config.proto().exchange().has_update_encoding() ? 1 : 0;
  const int arrays = std::max(kMaxSlots, config.workers()) + corrections + residuals;
  const int chunks = config.proto().recovery().replicas() > 0 ? 1 + arrays : 1;
  SetServerOptions(config.proto(), chunks, &builder);
  builder.RegisterService(parameter_service_.get());
  builder.RegisterService(admin_service_.get());
  if (replica_client_ != nullptr) builder.RegisterService(replication_service_.get());
  if (agreement_client_ != nullptr) builder.RegisterService(agreement_service_.get());
  ASSIGN_OR_RETURN(listener_,
                   Listener::Start(&builder, config.process_address(options_.shard), config.proto(),
                                   absl::StrCat("shard ", options_.shard)));
  admin_service_->ReportConnectionsOf(listener_.get());
  return absl::OkStatus();
}

void Server::FollowViews() {
  options_.view_link->Start({.on_view = [this](const View& view) { host_->Adopt(view); },
                             .on_end =
                                 [this](const absl::Status& reason) {
                                   spdlog::error("{}", std::string(reason.message()));
                                   {
                                     absl::MutexLock lock(&views_mutex_);
                                     views_ended_ = reason;
                                   }
                                   options_.request_shutdown();
                                 }});
  Announce();
}

void Server::Announce() {
  if (options_.view_link == nullptr) return;
  absl::MutexLock lock(&announce_mutex_);
  // Before the stop the host may not be there yet, and after it the link may have ended.
  if (stopping_.stop_requested() || host_ == nullptr) return;
  options_.view_link->Announce(host_->State());
}

absl::Status Server::views_ended() const {
  absl::MutexLock lock(&views_mutex_);
  return views_ended_;
}

void Server::ForEachShard(absl::FunctionRef<void(Shard&)> use) {
  for (int slot = 0; slot < options_.config->shards(); ++slot) {
    if (const std::shared_ptr<Shard> shard = host_->Primary(slot); shard != nullptr) use(*shard);
  }
}

Server::~Server() {
  Shutdown();
  // Shards that are still there end with it, and tell the services.
  host_.reset();
}

std::string Server::address() const {
  const std::string& configured = options_.config->process_address(options_.shard);
  if (port() == 0) return configured;
  return absl::StrCat(configured.substr(0, configured.rfind(':')), ":", port());
}

void Server::Shutdown() {
  {
    absl::MutexLock lock(&announce_mutex_);
    if (!stopping_.request_stop()) return;
  }
  if (watcher_.joinable()) watcher_.join();
  if (listener_ == nullptr) return;
  listener_->StopAccepting();
  const absl::Status reason =
      absl::UnavailableError(absl::StrCat("shard ", options_.shard, " is shutting down"));
  ForEachShard([&reason](Shard& shard) { shard.Close(reason); });
  parameter_service_->EndStreams(reason);
  replication_service_->EndStreams(reason);
  agreement_service_->EndCalls(reason);
  // Calls and checkpoints that have not ended by this deadline are given up, and the second that is
  // left of limits.shutdown_seconds is for that.
  const absl::Duration rest =
      absl::Seconds(std::max(options_.config->proto().limits().shutdown_seconds() - 1, 0.1));
  const absl::Time deadline = options_.clock->Now() + rest;
  listener_->Shutdown(absl::Now() + rest);
  host_->End(deadline);
}

void Server::Watch() {
  // A limit is exceeded by a tenth at most.
  const absl::Duration checks =
      absl::Seconds(std::min(options_.config->proto().limits().exchange_seconds() / 10, 1.0));
  // Streams to replicas, checkpoints, handovers and reports to slot 0 do not wait longer than this.
  const bool ticks = options_.config->proto().has_recovery() || options_.config->clips_mean() ||
                     options_.config->has_quorum();
  const absl::Duration period = ticks ? std::min(checks, absl::Milliseconds(100)) : checks;
  uint64_t bytes_before = 0;
  const RealClock clock;  // Abseil's waits with a timeout follow the time of day
  absl::Time next_check = clock.Now() + checks;
  while (clock.SleepUntil(clock.Now() + period, stopping_.get_token())) {
    host_->Tick();
    if (clock.Now() < next_check) continue;
    next_check = clock.Now() + checks;
    uint64_t bytes = 0;
    ForEachShard([&bytes](Shard& shard) {
      shard.CheckWaits();
      bytes += shard.bytes_moved();
    });
    Announce();  // a shard may have failed
    parameter_service_->EndWaitingStreams();
    parameter_service_->EndUnreadPulls();
    if (std::exchange(bytes_before, bytes) == bytes) options_.release_memory();
  }
}

}  // namespace evenshard
