#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_TEXT_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_TEXT_H_

#include <string>

#include "tools/psctl/advice/advice.h"

namespace evenshard {

// Formats an advice as tables and the sentence.
std::string AdviceText(const AdviceCluster& cluster, const Advice& advice);

// Formats it as a JSON object, which docs/operations.md describes.
std::string AdviceJson(const AdviceCluster& cluster, const Advice& advice);

// "vgg16, 8 workers, rtx_2080_ti, batch 32, links of 10 Gb/s, 100us a message".
std::string ClusterText(const AdviceCluster& cluster);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_TEXT_H_
