#ifndef EVENSHARD_COMMON_PROCESS_PROCESS_SETUP_H_
#define EVENSHARD_COMMON_PROCESS_PROCESS_SETUP_H_

namespace evenshard {

// Sets up tcmalloc, and what SetUpExchange does, for a program of the project. It starts threads,
// so main calls it once, after it has blocked the signals that it handles.
void SetUpProcess();

// Returns free memory to the system. Without this call tcmalloc keeps most of it, because it
// returns a little only when more memory is freed.
void ReleaseFreeMemory();

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_PROCESS_SETUP_H_
