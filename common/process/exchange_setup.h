#ifndef EVENSHARD_COMMON_PROCESS_EXCHANGE_SETUP_H_
#define EVENSHARD_COMMON_PROCESS_EXCHANGE_SETUP_H_

namespace evenshard {

// Sets up gRPC and Abseil for a process that exchanges gradients. It starts threads. May be called
// several times.
//
// gRPC stays initialised until the process ends, because its shutdown may wait 10 s for its own
// pollers. Abseil's detection of lock cycles is turned off, because with it Debian's build takes a
// global lock whenever a mutex is locked. The tests keep it on.
void SetUpExchange();

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_EXCHANGE_SETUP_H_
