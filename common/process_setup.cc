#include "common/process_setup.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include "absl/synchronization/mutex.h"
#include "common/text.h"
#include "gperftools/malloc_extension.h"
#include "spdlog/spdlog.h"

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
  gpr_set_log_function([](gpr_log_func_args* line) {
    spdlog::debug("gRPC: {} ({}:{})", Printable(line->message), line->file, line->line);
  });
}

void ReleaseFreeMemory() { MallocExtension::instance()->ReleaseFreeMemory(); }

}  // namespace ps
