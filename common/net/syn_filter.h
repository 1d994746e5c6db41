#ifndef EVENSHARD_COMMON_NET_SYN_FILTER_H_
#define EVENSHARD_COMMON_NET_SYN_FILTER_H_

#include <string>

#include "absl/types/span.h"

namespace evenshard {

// Makes the kernel drop what would begin a TCP connection to a socket that listens from one of
// `hosts`, without an answer, so that a flood of connections costs next to nothing (a classic BPF
// program, SO_ATTACH_FILTER in socket(7)). A host is 4 bytes of IPv4, or the first 8 of IPv6. It
// takes the place of what was called for the socket before; without hosts nothing is dropped. Of
// more than 64 hosts the others are let in. Returns false, and drops nothing, where the kernel does
// not take such a program, as when those of others have used up its memory for them.
bool DropConnectionsFrom(absl::Span<const std::string> hosts, int listening);

// A connection has the filter that its listening socket had. It needs none.
void RemoveFilter(int connection);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_SYN_FILTER_H_
