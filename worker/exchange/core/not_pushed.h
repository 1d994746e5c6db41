#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_NOT_PUSHED_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_NOT_PUSHED_H_

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/placement/model/model.h"

namespace evenshard {

// Errors: FAILED_PRECONDITION if one of the model's tensors has been pushed in the iteration, or is
// named twice.
inline absl::Status CheckNotPushed(const Model& model, absl::Span<const int> tensors,
                                   absl::FunctionRef<bool(int tensor)> is_pushed) {
  for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) {
    if (is_pushed(*tensor) || std::find(tensors.begin(), tensor, *tensor) != tensor) {
      return absl::FailedPreconditionError(absl::StrCat(
          model.tensors()[*tensor].name, " has been pushed in this iteration already"));
    }
  }
  return absl::OkStatus();
}

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_NOT_PUSHED_H_
