#ifndef EVENSHARD_COMMON_NET_INTRODUCTION_H_
#define EVENSHARD_COMMON_NET_INTRODUCTION_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace evenshard {

// Makes the process at the other end of `channel` know who is at this one, by a call that takes
// next to no bytes (grpc.health.v1 Check), and returns when it is answered. Whoever is not known
// may send little (limits.strangers.asking_burst_bytes), and a unary call is known only when all of
// its message has come. If nothing answers within `timeout`, or `is_stopped`, which is asked now
// and then, it returns as well: the next call tells what is wrong.
void Introduce(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
               absl::FunctionRef<bool()> is_stopped);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_INTRODUCTION_H_
