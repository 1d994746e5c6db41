#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_CHECKPOINTS_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_CHECKPOINTS_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_folder.h"

namespace evenshard {

// What is in a folder of checkpoints.
struct CheckpointsReport {
  std::string folder;
  absl::Time now;
  std::optional<uint64_t> run;  // the run that owns the folder, if it is known
  std::vector<CheckpointInfo> checkpoints;

  // Whether a checkpoint that was complete cannot be read any more.
  bool has_damaged() const;
};

// Looks at the folder. Errors: those of Storage, NOT_FOUND if there is no such folder.
absl::StatusOr<CheckpointsReport> MakeCheckpointsReport(Storage* storage, const std::string& folder,
                                                        Verification verification, absl::Time now);

std::string CheckpointsText(const CheckpointsReport& report);
std::string CheckpointsJson(const CheckpointsReport& report);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_CHECKPOINTS_REPORT_H_
