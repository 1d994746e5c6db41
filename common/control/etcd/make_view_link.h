#ifndef EVENSHARD_COMMON_CONTROL_ETCD_MAKE_VIEW_LINK_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_MAKE_VIEW_LINK_H_

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/control/view/view_link.h"
#include "proto/config.pb.h"

namespace evenshard {

// Returns a process's link to the coordinator of its run: the one at the address `coordinator`
// (--coordinator) if that is not empty, otherwise the one that the config's etcd elects, otherwise
// null, since the run has no views. `clock` must outlive the link.
std::unique_ptr<ViewLink> MakeViewLink(const std::string& coordinator, const ClusterConfig& config,
                                       const Clock* clock);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_MAKE_VIEW_LINK_H_
