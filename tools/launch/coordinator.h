#ifndef EVENSHARD_TOOLS_LAUNCH_COORDINATOR_H_
#define EVENSHARD_TOOLS_LAUNCH_COORDINATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/pending_count.h"
#include "common/control/view/view_coordinator.h"
#include "grpcpp/server.h"
#include "proto/coordinator.grpc.pb.h"
#include "tools/launch/launch_coordinator.h"

namespace evenshard {

// A LaunchCoordinator that serves Coordinator to the processes. Thread-safe.
class CoordinatorServer final : public LaunchCoordinator, private Coordinator::CallbackService {
 public:
  // Serves at a socket in a private folder, which the destructor removes. `clock` must outlive the
  // object. Errors: those of the folder; UNAVAILABLE if nobody can listen there.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      ViewCoordinator::Settings settings, ViewCoordinator::NewestCheckpoint newest_checkpoint,
      const Clock* clock);
  ~CoordinatorServer() override;

  // What --coordinator is for the processes.
  const std::string& address() const { return address_; }

 private:
  class Stream;

  CoordinatorServer(ViewCoordinator::Settings settings,
                    ViewCoordinator::NewestCheckpoint newest_checkpoint, const Clock* clock,
                    std::string folder);

  grpc::ServerBidiReactor<ProcessState, View>* Follow(
      grpc::CallbackServerContext* context) override;

  const std::string folder_;
  const std::string address_;
  PendingCount streams_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_COORDINATOR_H_
