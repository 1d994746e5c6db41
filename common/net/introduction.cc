#include "common/net/introduction.h"

#include <functional>
#include <utility>

#include "absl/time/clock.h"
#include "common/net/stoppable_call.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace evenshard {

void Introduce(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
               absl::FunctionRef<bool()> is_stopped) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  // gRPC tells that it is connected a moment before its calls know.
  context.set_wait_for_ready(true);
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  StoppableCall(
      &context,
      [&](std::function<void(grpc::Status)> done) {
        stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request,
                       &response, std::move(done));
      },
      is_stopped);
}

}  // namespace evenshard
