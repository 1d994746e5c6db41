#ifndef EVENSHARD_BENCH_WIRE_EMPTY_CALL_H_
#define EVENSHARD_BENCH_WIRE_EMPTY_CALL_H_

#include <memory>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace evenshard {

// The least work that gRPC can do for a call: a unary call with an empty request, which gRPC's own
// health service answers (grpc.health.v1 Check). It is waited for as generated blocking stubs do.
// Used by one thread.
class EmptyCall {
 public:
  explicit EmptyCall(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {}
  ~EmptyCall();

  // Makes one call and blocks until it is answered.
  absl::Status Run();

 private:
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_EMPTY_CALL_H_
