#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PREDICTION_TEXT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PREDICTION_TEXT_H_

#include <string>

#include "common/placement/planned_config.h"

namespace evenshard {

// The width of the names of findings, behind which their values are.
inline constexpr char kFindingIndent[] = "               ";

// A prediction of how long an iteration takes.
struct PredictedTime {
  double seconds = 0;
  double bound_seconds = 0;  // that none can beat
  bool computes = false;     // whether it contains computing, or is of the exchange alone
  std::string device;        // which it assumes
  std::string links;         // which it assumes: "links of 10 Gb/s"
};

// Returns the finding "predicted", with what the prediction assumes.
std::string PredictionText(const PlannedConfig& config, const PredictedTime& predicted);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PREDICTION_TEXT_H_
