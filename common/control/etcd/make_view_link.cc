#include "common/control/etcd/make_view_link.h"

#include "common/control/etcd/etcd_link.h"
#include "common/control/view/authority_link.h"

namespace evenshard {

std::unique_ptr<ViewLink> MakeViewLink(const std::string& authority, const ClusterConfig& config,
                                       const Clock* clock) {
  if (!authority.empty()) return std::make_unique<AuthorityLink>(authority, config);
  if (!config.recovery().has_etcd()) return nullptr;
  return std::make_unique<EtcdLink>(EtcdLink::OptionsOf(config, clock));
}

}  // namespace evenshard
