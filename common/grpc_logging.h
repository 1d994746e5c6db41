#ifndef PS_COMMON_GRPC_LOGGING_H_
#define PS_COMMON_GRPC_LOGGING_H_

namespace ps {

// Sends what gRPC's core logs to spdlog, at level debug: the statuses that its calls
// return say the same, and say it where it matters. Called once, by main.
void RouteGrpcLogs();

}  // namespace ps

#endif  // PS_COMMON_GRPC_LOGGING_H_
