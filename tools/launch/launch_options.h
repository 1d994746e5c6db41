#ifndef EVENSHARD_TOOLS_LAUNCH_LAUNCH_OPTIONS_H_
#define EVENSHARD_TOOLS_LAUNCH_LAUNCH_OPTIONS_H_

#include <limits>
#include <string>
#include <vector>

namespace evenshard {

// What the command line of launch says.
struct LaunchOptions {
  // A flag with a number has this value where the command line does not have it.
  static constexpr int kNotGiven = std::numeric_limits<int>::min();

  std::string config;
  std::vector<std::string> overrides;
  std::string save;
  std::string stats;
  std::string summary;
  std::string trace;
  std::string name;
  std::string log_dir;
  int stdin_rank = kNotGiven;
  int max_restarts = kNotGiven;
  bool resume = false;
  std::string ps;
  std::string worker;
  std::string psctl;
  std::vector<std::string> program;  // of the workers in place of `worker`, with its arguments
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_LAUNCH_OPTIONS_H_
