#include "server/rpc/declaration_wait.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/placement/planned_config.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.pb.h"
#include "proto/agreement.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/replication.pb.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

// A shard without a model, and calls of its methods with empty messages.
class WaitingShard {
 public:
  WaitingShard()
      : address_("unix:" + folder_.Path("0.sock")),
        config_(*PlannedConfig::Parse(
            absl::StrCat("model { from_workers {} } shard { address: \"", address_,
                         "\" } workers: 1 partition { scheme: STRIPED } update { policy: SYNC }"),
            "config")),
        wait_(*DeclarationWait::Start(
            {.config = &config_, .request_shutdown = [this] { is_told_to_end_ = true; }})),
        stub_(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials())) {}

  bool is_told_to_end() const { return is_told_to_end_; }

  grpc::Status Call(const std::string& method) {
    grpc::ClientContext context;
    const grpc::ByteBuffer request(nullptr, 0);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub_.UnaryCall(&context, method, {}, &request, &response,
                    [&](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

 private:
  const ScratchFolder folder_;
  const std::string address_;
  const PlannedConfig config_;
  std::atomic<bool> is_told_to_end_ = false;
  const std::unique_ptr<DeclarationWait> wait_;
  grpc::GenericStub stub_;
};

}  // namespace

TEST_CASE("a shard without a model asks whoever calls it to try again") {
  WaitingShard shard;
  int methods = 0;
  for (const google::protobuf::Descriptor* message :
       {JoinRequest::descriptor(), GetStatsRequest::descriptor(), AgreementReport::descriptor(),
        ReplicaChunk::descriptor()}) {
    const google::protobuf::ServiceDescriptor& service = *message->file()->service(0);
    for (int i = 0; i < service.method_count(); ++i) {
      const std::string& name = service.method(i)->name();
      if (name == "Join" || name == "Shutdown") continue;
      INFO(name);
      const grpc::Status status = shard.Call(absl::StrCat("/", service.full_name(), "/", name));
      CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
      CHECK(status.error_message() ==
            "shard 0 waits for worker 0 to declare the model (model.from_workers)");
      ++methods;
    }
  }
  CHECK(methods >= 17);
}

TEST_CASE("a shard without a model refuses a worker of another version, and ends when it is told") {
  WaitingShard shard;
  CHECK(shard.Call("/evenshard.v1.ParameterServer/Join").error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  CHECK_FALSE(shard.is_told_to_end());
  CHECK(shard.Call("/evenshard.v1.Admin/Shutdown").ok());
  CHECK(shard.is_told_to_end());
}

}  // namespace evenshard
