#ifndef EVENSHARD_COMMON_PROCESS_LOG_H_
#define EVENSHARD_COMMON_PROCESS_LOG_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/process/command_line.h"

namespace evenshard {

// Starts a program of the given name: calls ParseCommandLine with `flags` and --log_level, which
// takes one of spdlog's levels, and then SetUpLog. Returns an exit code if the program is to end.
std::optional<int> StartProgram(const std::string& name, absl::string_view usage,
                                absl::Span<const Flag> flags, int argc, const char* const* argv);

// Makes the program log to standard error, with the time of each line. `program` is the logger's
// name. An empty `level` means "info". REQUIRES: main calls this before it starts any thread.
//
// gRPC's own log goes there too: its errors and notices at level debug, everything at level trace.
// They are not shown by default, because the statuses of gRPC's calls report the same errors. A TLS
// handshake that fails is, within the bounds of LogRefusal, since a listener has no such call.
void SetUpLog(const std::string& program, const std::string& level);

// Logs the error and returns `exit_code`.
int LogError(const absl::Status& error, int exit_code);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_LOG_H_
