#include "common/net/raw_call.h"

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/parameter_server.grpc.pb.h"

namespace evenshard {
namespace {

// Answers a Join with the rank as the shard, but refuses rank 9.
class JoinService final
    : public ParameterServer::WithRawCallbackMethod_Join<ParameterServer::Service> {
 public:
  JoinService() {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~JoinService() override { server_->Shutdown(); }

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    return AnswerUnary<JoinRequest, JoinResponse>(
        context, *request, response, [](const JoinRequest& join) -> absl::StatusOr<JoinResponse> {
          if (join.worker() == 9) return absl::OutOfRangeError("there is no worker 9");
          JoinResponse joined;
          joined.set_shard(join.worker());
          return joined;
        });
  }

  // Sends `request` as the bytes of a Join.
  grpc::Status Call(const std::string& request, grpc::ByteBuffer* response) {
    grpc::GenericStub stub(server_->InProcessChannel({}));
    grpc::ClientContext context;
    const grpc::Slice slice(request);
    const grpc::ByteBuffer bytes(&slice, 1);
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/evenshard.v1.ParameterServer/Join", {}, &bytes, response,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

 private:
  std::unique_ptr<grpc::Server> server_;
};

std::string JoinOf(int rank) {
  JoinRequest request;
  request.set_worker(rank);
  return request.SerializeAsString();
}

// Says that 5 bytes follow, and ends.
constexpr char kMalformed[] = "\x2a\x05";

}  // namespace

TEST_CASE("a message is parsed from bytes that stay as they are") {
  const grpc::Slice slice(JoinOf(3));
  const grpc::ByteBuffer bytes(&slice, 1);
  for (int time = 0; time < 2; ++time) {
    const absl::StatusOr<JoinRequest> parsed = ParseMessage<JoinRequest>(bytes);
    REQUIRE(parsed.ok());
    CHECK(parsed->worker() == 3);
  }
}

TEST_CASE("bytes that are no message are refused with the message's name") {
  const grpc::Slice slice(kMalformed);
  const absl::Status refused = ParseMessage<JoinRequest>(grpc::ByteBuffer(&slice, 1)).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(refused.message() == "malformed JoinRequest");
}

TEST_CASE("a call is answered with what its handler returns") {
  JoinService service;
  grpc::ByteBuffer response;
  REQUIRE(service.Call(JoinOf(3), &response).ok());
  const absl::StatusOr<JoinResponse> joined = ParseMessage<JoinResponse>(response);
  REQUIRE(joined.ok());
  CHECK(joined->shard() == 3);

  const grpc::Status refused = service.Call(JoinOf(9), &response);
  CHECK(refused.error_code() == grpc::StatusCode::OUT_OF_RANGE);
  CHECK(refused.error_message() == "there is no worker 9");
}

TEST_CASE("a malformed call is refused with a reason, and not as an unknown method") {
  JoinService service;
  grpc::ByteBuffer response;
  const grpc::Status refused = service.Call(kMalformed, &response);
  CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(refused.error_message() == "malformed JoinRequest");
}

}  // namespace evenshard
