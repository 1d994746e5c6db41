#ifndef EVENSHARD_TESTS_INTEGRATION_RING_LAUNCH_H_
#define EVENSHARD_TESTS_INTEGRATION_RING_LAUNCH_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

inline constexpr char kRingConfigFile[] = "configs/digits_ring.textproto";

// Workers on unix sockets in `folder`, so that tests never meet on a port.
inline std::vector<std::string> RingOverrides(const ScratchFolder& folder, int workers,
                                              const std::vector<std::string>& more = {}) {
  std::string ring = "ring={";
  for (int rank = 0; rank < workers; ++rank) {
    absl::StrAppend(&ring, " address: 'unix:", folder.Path(absl::StrCat(rank, ".sock")), "'");
  }
  std::vector<std::string> overrides = {"--set", absl::StrCat("workers=", workers), "--set",
                                        ring + " }"};
  for (const std::string& each : more) overrides.insert(overrides.end(), {"--set", each});
  return overrides;
}

// The command that starts a ring of `workers`, with flags of launch and overrides of the config.
inline std::vector<std::string> LaunchRing(const ScratchFolder& folder, int workers,
                                           const std::vector<std::string>& flags,
                                           const std::vector<std::string>& more) {
  std::vector<std::string> command = {"tools/launch/launch",
                                      absl::StrCat("--config=", kRingConfigFile)};
  command.insert(command.end(), flags.begin(), flags.end());
  for (const std::string& each : RingOverrides(folder, workers, more)) command.push_back(each);
  return command;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_INTEGRATION_RING_LAUNCH_H_
