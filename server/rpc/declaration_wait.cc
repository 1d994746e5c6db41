#include "server/rpc/declaration_wait.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/raw_call.h"
#include "common/net/status_conversion.h"
#include "common/placement/declaration.h"
#include "common/security/rights.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/async_generic_service.h"
#include "server/session/join_check.h"
#include "spdlog/spdlog.h"

namespace evenshard {

namespace {

// The numbers of a service's other methods. `message`: one of the file that has the service.
std::vector<int> OthersThan(const google::protobuf::Descriptor& message,
                            const std::vector<absl::string_view>& methods) {
  const google::protobuf::ServiceDescriptor& service = *message.file()->service(0);
  std::vector<int> others;
  for (int i = 0; i < service.method_count(); ++i) {
    if (!absl::c_linear_search(methods, service.method(i)->name())) others.push_back(i);
  }
  return others;
}

}  // namespace

class DeclarationWait::EarlyParameterService final : public ParameterServer::Service {
 public:
  explicit EarlyParameterService(DeclarationWait* wait) : wait_(*wait) {
    for (const int other : OthersThan(*JoinRequest::descriptor(), {"Join", "Exchange"})) {
      MarkMethodGeneric(other);
    }
  }

 private:
  grpc::Status Join(grpc::ServerContext* context, const JoinRequest* request,
                    JoinResponse*) override {
    absl::Status joined =
        CheckCaller(*context, wait_.options_.config->proto().security(),
                    {.role = Role::kWorker, .index = static_cast<int>(request->worker())});
    if (joined.ok()) joined = wait_.Join(*request);
    return ToGrpc(joined);
  }
  // A worker joins when its streams are open. They end when a Server takes over.
  grpc::Status Exchange(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<ParameterChunks, GradientChunks>* stream) override {
    stream->SendInitialMetadata();
    GradientChunks ignored;
    while (stream->Read(&ignored)) {
    }
    return ToGrpc(wait_.NotYet());
  }

  DeclarationWait& wait_;
};

class DeclarationWait::EarlyAdminService final : public Admin::Service {
 public:
  explicit EarlyAdminService(DeclarationWait* wait) : wait_(*wait) {
    for (const int other : OthersThan(*ShutdownRequest::descriptor(), {"Shutdown"})) {
      MarkMethodGeneric(other);
    }
  }

 private:
  grpc::Status Shutdown(grpc::ServerContext*, const ShutdownRequest*, ShutdownResponse*) override {
    wait_.options_.request_shutdown();
    return grpc::Status::OK;
  }

  DeclarationWait& wait_;
};

// All methods that the other two leave, and those of services that only a Server has.
class DeclarationWait::EarlyRefusals final : public grpc::CallbackGenericService {
 public:
  explicit EarlyRefusals(const DeclarationWait* wait) : wait_(*wait) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Refused<BidiReactor>(wait_.NotYet());
  }

  const DeclarationWait& wait_;
};

DeclarationWait::DeclarationWait(const Options& options)
    : options_(options),
      parameter_service_(std::make_unique<EarlyParameterService>(this)),
      admin_service_(std::make_unique<EarlyAdminService>(this)),
      refusals_(std::make_unique<EarlyRefusals>(this)) {}

absl::StatusOr<std::unique_ptr<DeclarationWait>> DeclarationWait::Start(const Options& options) {
  const PlannedConfig& config = *options.config;
  const std::string& address = config.process_address(options.process);
  if (absl::EndsWith(address, ":0")) {
    return config.FieldError(absl::StrCat("shard[", options.process, "].address"),
                             absl::StrCat("is \"", address,
                                          "\" with model.from_workers, allowed: a port above 0, "
                                          "or a start by launch, which chooses one"));
  }
  std::unique_ptr<DeclarationWait> wait(new DeclarationWait(options));
  grpc::ServerBuilder builder;
  SetServerOptions(config.proto(), /*chunks=*/1, &builder);
  // The chunks of a model that nobody knows say nothing about the size of its declaration.
  builder.SetMaxReceiveMessageSize(GRPC_DEFAULT_MAX_RECV_MESSAGE_LENGTH);
  builder.RegisterService(wait->parameter_service_.get());
  builder.RegisterService(wait->admin_service_.get());
  builder.RegisterCallbackGenericService(wait->refusals_.get());
  ASSIGN_OR_RETURN(wait->listener_, Listener::Start(&builder, address, config.proto(),
                                                    absl::StrCat("shard ", options.process)));
  return wait;
}

DeclarationWait::~DeclarationWait() {
  // Time enough for the answer to the worker that has declared the model.
  if (listener_ != nullptr) listener_->Shutdown(absl::Now() + absl::Milliseconds(50));
}

absl::Status DeclarationWait::NotYet() const {
  return absl::UnavailableError(absl::StrCat(
      "shard ", options_.process, " waits for worker 0 to declare the model (model.from_workers)"));
}

absl::Status DeclarationWait::Join(const JoinRequest& request) {
  RETURN_IF_ERROR(CheckVersions(request, options_.process));
  if (options_.has_views) return NotYet();
  absl::StatusOr<PlannedConfig> config =
      options_.config->Declared(DeclarationOf(request.config(), options_.config->proto()));
  if (!config.ok()) return absl::FailedPreconditionError(config.status().message());
  if (!config->has_model()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker(), " declares no model (model.from_workers)"));
  }
  RETURN_IF_ERROR(CheckJoin(*config, request, options_.process));
  absl::MutexLock lock(&mutex_);
  if (!declared_.has_value()) {
    if (request.worker() != 0) {
      return absl::UnavailableError(
          absl::StrCat("shard ", options_.process, " waits for worker 0 to declare the model"));
    }
    spdlog::info("worker {} declares a model of {} tensors", request.worker(),
                 config->model().tensors().size());
    declared_ = *std::move(config);
  }
  return absl::UnavailableError(
      absl::StrCat("shard ", options_.process, " makes its parameters; try again"));
}

void DeclarationWait::Adopt(const View& view) {
  if (!view.has_declaration()) return;
  absl::MutexLock lock(&mutex_);
  if (!declared_.has_value()) declared_ = options_.config->Declared(view.declaration());
}

void DeclarationWait::Fail(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  if (!declared_.has_value()) declared_ = reason;
}

std::optional<absl::StatusOr<PlannedConfig>> DeclarationWait::declared() const {
  absl::MutexLock lock(&mutex_);
  return declared_;
}

}  // namespace evenshard
