#ifndef EVENSHARD_COMMON_BASE_ERROR_KIND_H_
#define EVENSHARD_COMMON_BASE_ERROR_KIND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/error.pb.h"

namespace evenshard {

// An error says to people what happened by its message, and to gRPC by its code. What it means for
// the run is its kind (proto/error.proto): in a payload of the status, which also goes with it from
// process to process (common/net/status_conversion.h).

// The name of the payload.
inline constexpr char kErrorDetailUrl[] = "type.googleapis.com/evenshard.v1.ErrorDetail";

ErrorDetail::Kind KindOf(const absl::Status& status);
// Returns an error with this kind in place of its own. An OK status stays OK.
absl::Status WithKind(ErrorDetail::Kind kind, absl::Status status);
// The name of the registered state that is not the same in all workers, or "" of another error.
std::string DifferingStateOf(const absl::Status& status);
// Returns an error with this name, made Printable and cut. An OK status stays OK.
absl::Status WithDifferingState(absl::string_view name, absl::Status status);
// Returns an error with another message. Code and payload stay.
absl::Status Reworded(const absl::Status& status, absl::string_view message);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_ERROR_KIND_H_
