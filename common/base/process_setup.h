#ifndef PS_COMMON_BASE_PROCESS_SETUP_H_
#define PS_COMMON_BASE_PROCESS_SETUP_H_

namespace ps {

// Sets up tcmalloc, gRPC and Abseil for a process that exchanges gradients. It starts threads, so
// main calls it once, after it has blocked the signals that it handles.
//
// gRPC stays initialised until the process ends, because its shutdown may wait 10 s for its own
// pollers. Abseil's detection of lock cycles is turned off, because with it Debian's build takes a
// global lock whenever a mutex is locked. The tests keep it on.
void SetUpProcess();

// Returns free memory to the system. Without this call tcmalloc keeps most of it, because it
// returns a little only when more memory is freed.
void ReleaseFreeMemory();

}  // namespace ps

#endif  // PS_COMMON_BASE_PROCESS_SETUP_H_
