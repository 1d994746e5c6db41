#ifndef EVENSHARD_COMMON_PROCESS_OPEN_FILES_H_
#define EVENSHARD_COMMON_PROCESS_OPEN_FILES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace evenshard {

// Makes sure that this process may have `more` open files beside those that it has, and some for
// what is not counted: raises its soft limit (RLIMIT_NOFILE) if that is too small. `what` says what
// they are for: "connections to 200 shards". Errors: RESOURCE_EXHAUSTED if the hard limit is
// smaller.
absl::Status ReserveOpenFiles(int64_t more, absl::string_view what);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_OPEN_FILES_H_
