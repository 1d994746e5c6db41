#ifndef EVENSHARD_SERVER_RPC_REFUSED_STREAM_H_
#define EVENSHARD_SERVER_RPC_REFUSED_STREAM_H_

#include "absl/status/status.h"
#include "common/net/status_conversion.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace evenshard {

// A stream that is refused at once. Deletes itself.
class RefusedStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const absl::Status& reason) { Finish(ToGrpc(reason)); }
  void OnDone() override { delete this; }
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_REFUSED_STREAM_H_
