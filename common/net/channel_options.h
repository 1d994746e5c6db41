#ifndef EVENSHARD_COMMON_NET_CHANNEL_OPTIONS_H_
#define EVENSHARD_COMMON_NET_CHANNEL_OPTIONS_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/security/identity.h"
#include "grpcpp/channel.h"
#include "grpcpp/server_builder.h"
#include "proto/config.pb.h"

// gRPC's settings for both ends of a connection. docs/performance.md says what they gain.

namespace evenshard {

// Creates a channel for control calls to a process of the run. It has a connection of its own, so
// that the calls never queue behind bulk data. It connects at its first call, and reconnects if the
// connection is lost. Calls fail where `security` does not allow the connection
// (common/security/credentials.h). Who listens on a unix socket is not examined: see CheckUnixPeer.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& address,
                                             const ClusterConfig& config, const ProcessName& peer);

// A connection without data is checked after this time, and the peer has as long to answer.
inline constexpr absl::Duration kKeepalive = absl::Seconds(20);

// Creates a channel for one stream of bulk data at a time, whose calls fail if another user than
// this process's, or root, listens on a unix socket. REQUIRES: the shard listens already, and
// `keepalive` is at least 1 s.
std::shared_ptr<grpc::Channel> CreateBulkChannel(const std::string& address,
                                                 const ClusterConfig& config,
                                                 const ProcessName& peer,
                                                 absl::Duration keepalive = kKeepalive);

// Sets the server's options: it limits the size of messages and headers and the number of streams
// on a connection, refuses compressed messages, and sends keepalive pings. A message may have the
// data of `chunks` chunks.
void SetServerOptions(const ClusterConfig& config, int chunks, grpc::ServerBuilder* builder);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_CHANNEL_OPTIONS_H_
