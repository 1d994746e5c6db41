#include "common/channel_options.h"

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace ps {
namespace {

// Room for a chunk and its header, and for control messages where chunks are small.
int MaxMessageBytes(const Limits& limits) {
  constexpr int kRoom = 256 * 1024;
  return static_cast<int>(limits.chunk_bytes()) + kRoom;
}

// One read call for a whole chunk, where gRPC by default reads 8 KiB to 4 MiB by guess.
constexpr char kReadChunkSize[] = "grpc.experimental.tcp_read_chunk_size";
constexpr int kReadChunkBytes = 1 << 20;

// A peer whose host is gone is noticed after at most this long without data.
constexpr int kKeepaliveMilliseconds = 20000;

}  // namespace

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& address, const Limits& limits) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(MaxMessageBytes(limits));
  arguments.SetInt(kReadChunkSize, kReadChunkBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  // A worker that waits for others sends no data and must notice a dead shard all the same.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Channels to the same address would otherwise share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The retry filter keeps sent slices until the call ends.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // The traffic of a cluster must not go where an http_proxy variable points.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A shard that starts a little later is found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // This one is the time that an attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void SetServerOptions(const Limits& limits, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(MaxMessageBytes(limits));
  builder->AddChannelArgument(kReadChunkSize, kReadChunkBytes);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kKeepaliveMilliseconds / 2);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace ps
