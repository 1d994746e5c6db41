#include "common/net/introduction.h"

#include <future>

#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace evenshard {
namespace {

constexpr absl::Duration kStopPeriod = absl::Milliseconds(50);

}  // namespace

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
  std::promise<void> promise;
  std::future<void> answered = promise.get_future();
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&promise](const grpc::Status&) { promise.set_value(); });
  while (answered.wait_for(absl::ToChronoMilliseconds(kStopPeriod)) != std::future_status::ready) {
    if (is_stopped()) context.TryCancel();
  }
}

}  // namespace evenshard
