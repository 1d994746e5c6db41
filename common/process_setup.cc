#include "common/process_setup.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include "absl/synchronization/mutex.h"
#include "spdlog/spdlog.h"

namespace ps {

void SetUpProcess() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc_init();  // starts threads; never matched by grpc_shutdown
  gpr_set_log_function([](gpr_log_func_args* line) {
    spdlog::debug("gRPC: {} ({}:{})", line->message, line->file, line->line);
  });
}

}  // namespace ps
