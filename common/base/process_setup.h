#ifndef PS_COMMON_BASE_PROCESS_SETUP_H_
#define PS_COMMON_BASE_PROCESS_SETUP_H_

namespace ps {

// What tcmalloc, gRPC and Abseil need in a process that exchanges gradients. Called once, by main,
// which blocks signals first: it starts threads.
//
// Keeps gRPC from being shut down before the process ends: its last user may wait 10 s for its own
// pollers. Turns off the search for lock cycles, for which Debian's Abseil takes a lock of the
// whole process at every lock: the tests run with it.
void SetUpProcess();

// Gives the memory that is free back to the system. tcmalloc keeps it otherwise, and gives a little
// back only while more is freed.
void ReleaseFreeMemory();

}  // namespace ps

#endif  // PS_COMMON_BASE_PROCESS_SETUP_H_
