#ifndef EVENSHARD_COMMON_NET_STOPPABLE_CALL_H_
#define EVENSHARD_COMMON_NET_STOPPABLE_CALL_H_

#include <functional>

#include "absl/functional/function_ref.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace evenshard {

// Waits for a call that `start` starts, and that calls `done` at its end. It is cancelled soon
// after `is_stopped`, which is asked now and then. Unlike with a stop callback, nothing of gRPC's
// runs in the thread that requests the stop, which may hold locks.
grpc::Status StoppableCall(grpc::ClientContext* context,
                           absl::FunctionRef<void(std::function<void(grpc::Status)> done)> start,
                           absl::FunctionRef<bool()> is_stopped);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_STOPPABLE_CALL_H_
