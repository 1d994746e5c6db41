#ifndef EVENSHARD_COMMON_CONTROL_VIEW_VIEW_CHECK_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_VIEW_CHECK_H_

#include "absl/status/status.h"
#include "proto/view.pb.h"

namespace evenshard {

// Checks that a view that has been received is one of a run with so many slots, none in a ring, and
// workers: there is an entry for each, and the worker sets are as common/control/view/worker_set.h
// says, of these workers; in a ring the last one is. Whoever uses a view relies on that. Errors:
// INVALID_ARGUMENT.
absl::Status CheckView(const View& view, int slots, int workers);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_VIEW_CHECK_H_
