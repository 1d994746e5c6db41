#include "common/process/process_setup.h"

#include <cstddef>

#include "common/process/exchange_setup.h"
#ifdef EVENSHARD_TCMALLOC
#include "gperftools/malloc_extension.h"
#endif

namespace evenshard {
namespace {

// The thread that frees a received slice is not the one that allocated it. With tcmalloc's default
// size, the threads' caches would hold more freed slices than are ever used again.
void LimitThreadCaches() {
#ifdef EVENSHARD_TCMALLOC  // not defined with sanitizers, which have a malloc of their own
  constexpr size_t kBytes = 8 << 20;
  MallocExtension::instance()->SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", kBytes);
#endif
}

}  // namespace

void SetUpProcess() {
  LimitThreadCaches();
  SetUpExchange();
}

void ReleaseFreeMemory() {
#ifdef EVENSHARD_TCMALLOC
  MallocExtension::instance()->ReleaseFreeMemory();
#endif
}

}  // namespace evenshard
