#ifndef PS_COMMON_CONFIG_CONFIG_CONTRACT_H_
#define PS_COMMON_CONFIG_CONFIG_CONTRACT_H_

#include <functional>
#include <string>

#include "common/model/model.h"
#include "proto/config.pb.h"

namespace ps {

// Calls `visit` with each path of `data`: every string in it is one.
void VisitPaths(Data* data, const std::function<void(std::string*)>& visit);

// Sets the fields whose default depends on other fields or on the model, so that
// no reader of a config needs to know these defaults.
void SetDependentDefaults(const Model& model, ClusterConfig* config);

// What Config::Contract returns for a config with its dependent defaults set.
ClusterConfig ContractOf(ClusterConfig config);

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_CONTRACT_H_
