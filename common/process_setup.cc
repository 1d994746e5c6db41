#include "common/process_setup.h"

#include <grpc/grpc.h>

#include "absl/synchronization/mutex.h"
#include "gperftools/malloc_extension.h"

namespace ps {
namespace {

// Received slices are freed by other threads than those that allocated them; by default each
// thread keeps more of them than helps.
constexpr size_t kThreadCachesBytes = 8 << 20;

}  // namespace

void SetUpProcess() {
  MallocExtension::instance()->SetNumericProperty("tcmalloc.max_total_thread_cache_bytes",
                                                  kThreadCachesBytes);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc_init();  // starts threads; never matched by grpc_shutdown
}

void ReleaseFreeMemory() { MallocExtension::instance()->ReleaseFreeMemory(); }

}  // namespace ps
