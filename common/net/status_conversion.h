#ifndef PS_COMMON_NET_STATUS_CONVERSION_H_
#define PS_COMMON_NET_STATUS_CONVERSION_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace ps {

// gRPC and Abseil number their codes alike; only here is that relied on. A message is
// made Printable in both directions: it may quote what a peer sent, or be a peer's own, and gRPC's
// metadata has little room.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace ps

#endif  // PS_COMMON_NET_STATUS_CONVERSION_H_
