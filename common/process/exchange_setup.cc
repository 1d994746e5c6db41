#include "common/process/exchange_setup.h"

#include <grpc/grpc.h>

#include "absl/synchronization/mutex.h"

namespace evenshard {

void SetUpExchange() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc_init();  // starts threads; grpc_shutdown is never called
}

}  // namespace evenshard
