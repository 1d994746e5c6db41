#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_WORKER_STATE_WORKER_STATE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_WORKER_STATE_WORKER_STATE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace evenshard {

// What a worker keeps by itself, and another one that was started again gets from it. To the
// exchange it is a number of bytes, in parts, and a text that says what the parts are.
struct WorkerState {
  using Memory = std::vector<absl::Span<char>>;

  std::string text;
  Memory memory;

  // Makes what is sent, whose memory stays as it is meanwhile, or says why it cannot be sent:
  // UNAVAILABLE if that may be otherwise soon.
  using Make = absl::FunctionRef<absl::StatusOr<WorkerState>()>;
  // Says where the state goes that a text describes, or why it does not fit.
  using Place = std::function<absl::StatusOr<Memory>(const std::string& text)>;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_WORKER_STATE_WORKER_STATE_H_
