#ifndef PS_WORKER_DATA_READ_FILE_H_
#define PS_WORKER_DATA_READ_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace ps {

// The whole content of a file, unpacked where it is gzip-compressed. Every error
// names the file: NOT_FOUND, PERMISSION_DENIED or what else the system says;
// DATA_LOSS where compressed data is damaged or ends early.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace ps

#endif  // PS_WORKER_DATA_READ_FILE_H_
