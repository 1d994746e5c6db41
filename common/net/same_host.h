#ifndef PS_COMMON_NET_SAME_HOST_H_
#define PS_COMMON_NET_SAME_HOST_H_

#include <string>

#include "proto/config.pb.h"

namespace ps {

// Whether the config lets a worker and a shard that are on one host exchange through memory that
// both map.
bool MayShareMemory(const ExchangeConfig& exchange);

// Whether an address of a shard, "HOST:PORT" or "unix:PATH", is one of this host, so that what is
// sent there passes no network. Resolves names; false where that fails.
bool IsOfThisHost(const std::string& address);

}  // namespace ps

#endif  // PS_COMMON_NET_SAME_HOST_H_
