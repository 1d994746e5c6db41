#ifndef PS_BENCH_EMPTY_CALL_H_
#define PS_BENCH_EMPTY_CALL_H_

#include <memory>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace ps {

// The least that gRPC can do: a unary call with an empty request that the server answers by
// itself (grpc.health.v1 Check), waited for as generated blocking stubs do. Used by one thread.
class EmptyCall {
 public:
  explicit EmptyCall(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {}
  ~EmptyCall();

  // Blocks until the answer is there.
  absl::Status Run();

 private:
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

}  // namespace ps

#endif  // PS_BENCH_EMPTY_CALL_H_
