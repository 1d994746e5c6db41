#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_ADVISED_CONFIG_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_ADVISED_CONFIG_H_

#include <string>

#include "tools/psctl/advice/advice.h"

namespace evenshard {

// Returns the text of a config file for the choice to take: that of the cluster, with the choice's
// places, schedule and addresses. Paths in it are absolute. Addresses that the cluster's config
// does not have are on 127.0.0.1, and a comment at the top says so.
std::string AdvisedConfig(const AdviceCluster& cluster, const Choice& choice);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_ADVISED_CONFIG_H_
