#include "common/process/standard_output.h"

#include <cerrno>
#include <cstring>
#include <iostream>

namespace evenshard {

int FlushStandardOutput(absl::string_view program, int exit_code, int failure) {
  if (std::cout.flush()) return exit_code;
  std::cerr << program << ": cannot write to standard output: " << std::strerror(errno) << "\n";
  std::cout.clear();  // it is said once
  return failure;
}

}  // namespace evenshard
