#ifndef EVENSHARD_COMMON_PROCESS_STANDARD_OUTPUT_H_
#define EVENSHARD_COMMON_PROCESS_STANDARD_OUTPUT_H_

#include "absl/strings/string_view.h"

namespace evenshard {

// What a program that prints its result returns from main: `exit_code`, or `failure` if not all of
// it could be written, as on a full disk. Then standard error has the reason, after the program's
// name.
int FlushStandardOutput(absl::string_view program, int exit_code, int failure);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_STANDARD_OUTPUT_H_
