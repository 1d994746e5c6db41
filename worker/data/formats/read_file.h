#ifndef EVENSHARD_WORKER_DATA_FORMATS_READ_FILE_H_
#define EVENSHARD_WORKER_DATA_FORMATS_READ_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace evenshard {

// Returns the whole content of a file, and decompresses it if it is in gzip format. Errors name the
// file: NOT_FOUND, PERMISSION_DENIED or another status of the system; DATA_LOSS if compressed data
// is damaged or ends early.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_READ_FILE_H_
