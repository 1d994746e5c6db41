#ifndef PS_COMMON_BASE_LOG_H_
#define PS_COMMON_BASE_LOG_H_

#include <string>

#include "common/base/command_line.h"

namespace ps {

// The flag --log_level, which takes a level as spdlog names it: "trace", "debug", "info",
// "warning", "error", "critical" or "off". `level` is empty where the flag is not given.
Flag LogLevelFlag(std::string* level);

// Sets up the log of a program, whose name is `program`: to standard error, with the time. Called
// by main, before any thread starts. An empty `level` is "info".
//
// What gRPC itself logs goes there too: its errors and notices from level debug on, all that it has
// at level trace. The statuses that its calls return say the same, and say it where it matters.
void SetUpLog(const std::string& program, const std::string& level);

}  // namespace ps

#endif  // PS_COMMON_BASE_LOG_H_
