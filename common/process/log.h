#ifndef EVENSHARD_COMMON_PROCESS_LOG_H_
#define EVENSHARD_COMMON_PROCESS_LOG_H_

#include <string>

#include "common/process/command_line.h"

namespace evenshard {

// Returns the flag --log_level, which takes one of spdlog's levels: "trace", "debug", "info",
// "warning", "error", "critical" or "off". `level` keeps its value if the flag is not given.
Flag LogLevelFlag(std::string* level);

// Makes the program log to standard error, with the time of each line. `program` is the logger's
// name. An empty `level` means "info". REQUIRES: main calls this before it starts any thread.
//
// gRPC's own log goes there too: its errors and notices at level debug, everything at level trace.
// They are not shown by default, because the statuses of gRPC's calls report the same errors.
void SetUpLog(const std::string& program, const std::string& level);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_LOG_H_
