#ifndef EVENSHARD_COMMON_NET_STATUS_CONVERSION_H_
#define EVENSHARD_COMMON_NET_STATUS_CONVERSION_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace evenshard {

// Convert between the statuses of gRPC and Abseil. Both libraries use the same numbers for their
// codes, and only these two functions rely on that. They make the message Printable and limit its
// length, because it may contain text from a peer, and because gRPC's metadata has little room. An
// error's kind and the state that differs (common/base/error_kind.h) go with it; other payloads do
// not.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_STATUS_CONVERSION_H_
