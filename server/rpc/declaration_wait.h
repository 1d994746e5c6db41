#ifndef EVENSHARD_SERVER_RPC_DECLARATION_WAIT_H_
#define EVENSHARD_SERVER_RPC_DECLARATION_WAIT_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/control/view/view_link.h"
#include "common/net/listener.h"
#include "common/placement/planned_config.h"
#include "proto/admin.grpc.pb.h"
#include "proto/parameter_server.grpc.pb.h"

namespace evenshard {

// A ps of a run with model.from_workers before it knows the model: it listens, and refuses every
// call but Shutdown with UNAVAILABLE, so that a worker that was connected to the process before it
// tries again. Without views worker 0 declares the model when it wants to join; with views they say
// it (View.declaration). Then this object is destroyed, and a Server takes its place, at which the
// worker tries again. Thread-safe.
class DeclarationWait {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the object
    int process = 0;                        // the index of this process
    // The caller passes views to Adopt, and workers declare nothing here.
    bool has_views = false;
    // Called when a Shutdown RPC comes. Must not block.
    std::function<void()> request_shutdown = [] {};
  };

  // Errors: those of Listener; INVALID_ARGUMENT if the process's address has port 0, since the
  // Server must have the same port.
  static absl::StatusOr<std::unique_ptr<DeclarationWait>> Start(const Options& options);
  ~DeclarationWait();

  void Adopt(const View& view);
  // There will be no declaration.
  void Fail(const absl::Status& reason);

  // Returns the config with the model once it is known, or why it will not be.
  std::optional<absl::StatusOr<PlannedConfig>> declared() const;

 private:
  class EarlyParameterService;
  class EarlyAdminService;
  class EarlyRefusals;

  explicit DeclarationWait(const Options& options);

  absl::Status Join(const JoinRequest& request);
  absl::Status NotYet() const;

  const Options options_;

  mutable absl::Mutex mutex_;
  std::optional<absl::StatusOr<PlannedConfig>> declared_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<EarlyParameterService> parameter_service_;
  std::unique_ptr<EarlyAdminService> admin_service_;
  std::unique_ptr<EarlyRefusals> refusals_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_DECLARATION_WAIT_H_
