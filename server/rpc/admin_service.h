#ifndef EVENSHARD_SERVER_RPC_ADMIN_SERVICE_H_
#define EVENSHARD_SERVER_RPC_ADMIN_SERVICE_H_

#include <atomic>
#include <functional>
#include <utility>

#include "common/net/listener.h"
#include "common/net/raw_call.h"
#include "common/placement/planned_config.h"
#include "proto/admin.grpc.pb.h"
#include "server/recovery/slot_host.h"

namespace evenshard {

// Translates the Admin RPCs into calls of the process's shards. Its methods are raw for the reason
// given at AnswerUnary. Thread-safe.
class AdminService final
    : public Admin::WithRawCallbackMethod_GetStats<
          Admin::WithRawCallbackMethod_GetView<Admin::WithRawCallbackMethod_GetDeclaration<
              Admin::WithRawCallbackMethod_Shutdown<Admin::Service>>>> {
 public:
  // `config` and `host` must outlive the service. `process` is the slot that is meant where none is
  // named. `request_shutdown` must not block.
  AdminService(const PlannedConfig* config, const SlotHost* host, int process,
               std::function<void()> request_shutdown)
      : config_(*config),
        host_(host),
        process_(process),
        request_shutdown_(std::move(request_shutdown)) {}

  // From now on the statistics have the connections of `listener`, which must outlive the service's
  // calls.
  void ReportConnectionsOf(const Listener* listener) { listener_ = listener; }

 private:
  UnaryReactor* GetStats(CallContext* context, const MessageBytes* request,
                         MessageBytes* response) override;
  UnaryReactor* GetView(CallContext* context, const MessageBytes* request,
                        MessageBytes* response) override;
  UnaryReactor* GetDeclaration(CallContext* context, const MessageBytes* request,
                               MessageBytes* response) override;
  UnaryReactor* Shutdown(CallContext* context, const MessageBytes* request,
                         MessageBytes* response) override;

  const PlannedConfig& config_;
  const SlotHost* const host_;
  const int process_;
  const std::function<void()> request_shutdown_;
  std::atomic<const Listener*> listener_ = nullptr;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_ADMIN_SERVICE_H_
