#include "common/base/process_setup.h"

#include <grpc/grpc.h>

#include "absl/synchronization/mutex.h"
#ifdef PS_TCMALLOC
#include "gperftools/malloc_extension.h"
#endif

namespace ps {
namespace {

// Received slices are freed by other threads than those that allocated them; by default each
// thread keeps more of them than helps.
void LimitThreadCaches() {
#ifdef PS_TCMALLOC  // else a sanitizer has put its own malloc in place of tcmalloc
  constexpr size_t kBytes = 8 << 20;
  MallocExtension::instance()->SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", kBytes);
#endif
}

}  // namespace

void SetUpProcess() {
  LimitThreadCaches();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc_init();  // starts threads; never matched by grpc_shutdown
}

void ReleaseFreeMemory() {
#ifdef PS_TCMALLOC
  MallocExtension::instance()->ReleaseFreeMemory();
#endif
}

}  // namespace ps
