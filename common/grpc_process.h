#ifndef PS_COMMON_GRPC_PROCESS_H_
#define PS_COMMON_GRPC_PROCESS_H_

namespace ps {

// Called once, by main, which blocks signals first: it starts threads. Sends what gRPC's core logs
// to spdlog, at level debug: the statuses that its calls return say the same, and say it where it
// matters. Keeps gRPC from being shut down before the process ends: its last user may wait 10 s for
// its own pollers.
void SetUpGrpc();

}  // namespace ps

#endif  // PS_COMMON_GRPC_PROCESS_H_
