#ifndef EVENSHARD_SERVER_RPC_PEERS_AGREEMENT_SERVICE_H_
#define EVENSHARD_SERVER_RPC_PEERS_AGREEMENT_SERVICE_H_

#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/net/raw_call.h"
#include "proto/agreement.grpc.pb.h"
#include "proto/config.pb.h"
#include "server/recovery/slot_host.h"

namespace evenshard {

// Translates the Agreement RPC into calls of SlotHost::TakeReport. A report is taken only from the
// process that is the slot's primary, as far as its certificate says who it is. Thread-safe.
class AgreementService final : public Agreement::WithRawCallbackMethod_Agree<Agreement::Service> {
 public:
  // Both must outlive the service.
  AgreementService(const SlotHost* host, const Security* security)
      : host_(host), security_(security) {}

  // Ends every call that waits, and each later one that would, with `status`.
  void EndCalls(const absl::Status& status);

 private:
  class Call;

  UnaryReactor* Agree(CallContext* context, const MessageBytes* request,
                      MessageBytes* response) override;

  // Errors: UNAVAILABLE for a report of another view; those of CheckCaller.
  absl::Status CheckReporter(const CallContext& context, const AgreementReport& report) const;

  const SlotHost* const host_;
  const Security* const security_;
  absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // whose RPCs are not done
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PEERS_AGREEMENT_SERVICE_H_
