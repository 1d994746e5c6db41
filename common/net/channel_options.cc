#include "common/net/channel_options.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "common/net/unix_socket.h"
#include "common/security/credentials.h"
#include "common/security/refusal_log.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/support/channel_arguments.h"

namespace evenshard {
namespace {

// A message must have room for a chunk and its header, or for a control message, which may be
// larger than a small chunk: a Join has the names and shapes of all tensors that workers bring.
int MaxMessageBytes(const Limits& limits, int chunks) {
  constexpr int kRoom = 1024 * 1024;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(chunks * int64_t{limits.chunk_bytes()} + kRoom, kMost));
}

constexpr int kBulkBytes = 1 << 20;
// One read of gRPC 1.51, so that little can be made of what it has read before anything is seen of
// it: thousands of calls, or of answers to pings, which all cost memory. Goodput is the same as
// with 256 KiB. With more than eight slices of 64 KiB at the end of a handshake gRPC would lose 576
// bytes.
constexpr int kBulkBytesWithTls = 1 << 16;

// gRPC's own estimate of the window (BDP probing) grows to hundreds of megabytes, so that received
// data has left the processor's cache before it is used. A fixed window takes a third less time.
template <typename SetInt>
void SetFlowControl(const ClusterConfig& config, SetInt set) {
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, static_cast<int>(config.limits().window_bytes()));
  // One frame holds a whole chunk. HTTP/2's default is frames of 16 KiB.
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kBulkBytes);
  // One read call reads as much. By default, gRPC guesses a size between 8 KiB and 4 MiB.
  const int read_bytes = config.security().has_certificate() ? kBulkBytesWithTls : kBulkBytes;
  set("grpc.experimental.tcp_read_chunk_size", read_bytes);
  set("grpc.experimental.tcp_max_read_chunk_size", read_bytes);
}

// Compression is off at both ends. gRPC would inflate a message before it applies the size limit,
// and a message below the limit may grow a thousandfold. A call whose header announces compression
// ends with UNIMPLEMENTED, and no message is ever inflated.
constexpr int kNoDecompression = 0;
constexpr int kUncompressedOnly = 1 << GRPC_COMPRESS_NONE;

int InMilliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

grpc::ChannelArguments Arguments(const ClusterConfig& config, absl::Duration keepalive) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(MaxMessageBytes(config.limits(), /*chunks=*/1));
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, kNoDecompression);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, kUncompressedOnly);
  SetFlowControl(config, [&](const char* name, int value) { arguments.SetInt(name, value); });
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, InMilliseconds(keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, InMilliseconds(keepalive));
  // A worker that waits for others sends no data, but must still notice a dead shard.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Channels to the same address would otherwise share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The retry filter keeps sent slices until the call ends.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // The traffic of a cluster must not go where an http_proxy variable points.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A shard that starts a little later is found quickly.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name, this is the timeout of an attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& address,
                                             const ClusterConfig& config, const ProcessName& peer) {
  return grpc::CreateCustomChannel(address, ChannelCredentialsFor(address, config.security(), peer),
                                   Arguments(config, kKeepalive));
}

std::shared_ptr<grpc::Channel> CreateBulkChannel(const std::string& address,
                                                 const ClusterConfig& config,
                                                 const ProcessName& peer,
                                                 absl::Duration keepalive) {
  const grpc::ChannelArguments arguments = Arguments(config, keepalive);
  auto credentials = ChannelCredentialsFor(address, config.security(), peer);
  if (const std::optional<std::string> path = UnixPath(address); path.has_value()) {
    const absl::StatusOr<int> fd = ConnectUnix(*path);
    if (fd.ok()) {
      return grpc::CreateCustomInsecureChannelFromFd(address, *fd, arguments);
    }
    if (IsUnknownPeer(fd.status())) {
      LogRefusal(fd.status().message());
      credentials = nullptr;  // gRPC would connect to whoever listens
    }
  }
  // If the unix socket cannot be connected, the channel's calls fail with the reason.
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

void SetServerOptions(const ClusterConfig& config, int chunks, grpc::ServerBuilder* builder) {
  const Limits& limits = config.limits();
  builder->SetMaxReceiveMessageSize(MaxMessageBytes(limits, chunks));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.strangers().streams());
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.strangers().header_bytes());
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, kNoDecompression);
  // The builder would overwrite the equivalent channel argument.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  SetFlowControl(config,
                 [&](const char* name, int value) { builder->AddChannelArgument(name, value); });
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, InMilliseconds(kKeepalive));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, InMilliseconds(kKeepalive));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              InMilliseconds(absl::Seconds(limits.strangers().ping_seconds())));
}

}  // namespace evenshard
