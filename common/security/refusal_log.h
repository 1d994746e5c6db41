#ifndef EVENSHARD_COMMON_SECURITY_REFUSAL_LOG_H_
#define EVENSHARD_COMMON_SECURITY_REFUSAL_LOG_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace evenshard {

// Writes why somebody was refused, "refused: ...", in ten lines a minute at most: those who are
// refused must not fill the log. The line after a pause says how many were left out. Thread-safe.
void LogRefusal(absl::string_view what);
// From now on so many lines a minute (limits.strangers.log_lines).
void LimitRefusalLines(int lines);
// Adds to a text of gRPC what an error of OpenSSL in it means here, and what to do.
std::string ExplainTls(std::string text);
// How many LogRefusal was told in this process.
uint64_t Refusals();

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_REFUSAL_LOG_H_
