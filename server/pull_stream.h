#ifndef PS_SERVER_PULL_STREAM_H_
#define PS_SERVER_PULL_STREAM_H_

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/encoding.pb.h"
#include "server/shard.h"

namespace ps {

// One Pull RPC: sends every chunk of the shard, each a copy of its parameters at the
// moment of sending, in the encoding that was asked for. Deletes itself when the RPC is done.
class PullStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // `request`: a serialised PullRequest. `shard` must outlive the RPC.
  PullStream(Shard* shard, const grpc::ByteBuffer& request);

 private:
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }
  void WriteNext();

  Shard* const shard_;
  Encoding encoding_ = FLOAT32;
  size_t next_ = 0;  // index of the next chunk to send
  grpc::ByteBuffer write_;
};

}  // namespace ps

#endif  // PS_SERVER_PULL_STREAM_H_
