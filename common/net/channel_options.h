#ifndef PS_COMMON_NET_CHANNEL_OPTIONS_H_
#define PS_COMMON_NET_CHANNEL_OPTIONS_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/server_builder.h"
#include "proto/config.pb.h"

// gRPC's settings, the same at both ends. docs/performance.md has what they gain.

namespace ps {

// A channel for control calls, with a connection of its own, so that they never queue behind
// bulk data. Connects lazily, and again where the connection was lost.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& address, const Limits& limits);

// A channel for one stream of bulk data to a shard that is up.
std::shared_ptr<grpc::Channel> CreateBulkChannel(const std::string& address, const Limits& limits);

// Message size, no compressed messages, a bound of the streams on a connection, keepalive, and no
// second listener on a port in use.
void SetServerOptions(const Limits& limits, grpc::ServerBuilder* builder);

}  // namespace ps

#endif  // PS_COMMON_NET_CHANNEL_OPTIONS_H_
