#ifndef EVENSHARD_TOOLS_PSCTL_VERBS_PSCTL_FLAGS_H_
#define EVENSHARD_TOOLS_PSCTL_VERBS_PSCTL_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace evenshard {

// Checks of flags that several verbs have. Errors: INVALID_ARGUMENT, which names the flag, its
// value and what is allowed.
absl::Status CheckFormat(const std::string& format);
absl::Status CheckAboveZero(absl::string_view flag, double value);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_VERBS_PSCTL_FLAGS_H_
