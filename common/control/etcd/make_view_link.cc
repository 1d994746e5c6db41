#include "common/control/etcd/make_view_link.h"

#include "common/control/etcd/etcd_link.h"
#include "common/control/etcd/etcd_threads.h"
#include "common/control/view/coordinator_link.h"

namespace evenshard {

std::unique_ptr<ViewLink> MakeViewLink(const std::string& coordinator, const ClusterConfig& config,
                                       const Clock* clock) {
  if (!coordinator.empty()) return std::make_unique<CoordinatorLink>(coordinator, config, clock);
  if (!config.recovery().has_etcd()) return nullptr;
  return std::make_unique<EtcdLink>(EtcdLink::OptionsOf(config, EtcdThreads::Of(config, clock)));
}

}  // namespace evenshard
