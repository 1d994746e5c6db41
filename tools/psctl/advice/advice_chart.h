#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_CHART_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_CHART_H_

#include <string>

#include "tools/psctl/advice/advice.h"

namespace evenshard {

// Draws the images per second of the choices as horizontal bars, the fastest on top, in two groups:
// what computes the same as SYNC in float32, and what computes something else. Returns an SVG.
std::string AdviceChart(const AdviceCluster& cluster, const Advice& advice);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_CHART_H_
