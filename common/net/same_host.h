#ifndef EVENSHARD_COMMON_NET_SAME_HOST_H_
#define EVENSHARD_COMMON_NET_SAME_HOST_H_

#include <string>

#include "proto/config.pb.h"

namespace evenshard {

// Returns whether the config permits a worker and a shard on the same host to exchange chunks
// through memory that both map.
bool MayShareMemory(const ExchangeConfig& exchange);

// Returns whether a shard's address, "HOST:PORT" or "unix:PATH", belongs to this host, so that data
// for it does not cross a network. Resolves names, and returns false if that fails.
bool IsOfThisHost(const std::string& address);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_SAME_HOST_H_
