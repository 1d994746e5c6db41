#include "common/process/exchange_setup.h"

#include <grpc/grpc.h>

#include "absl/synchronization/mutex.h"
#include "common/security/refusal_log.h"

namespace evenshard {

void SetUpExchange() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  BoundGrpcLog();
  grpc_init();  // starts threads; grpc_shutdown is never called
}

}  // namespace evenshard
