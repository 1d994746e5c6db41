#include "server/rpc/peers/agreement_service.h"

#include <atomic>

#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/security/rights.h"

namespace evenshard {

// One Agree RPC. It stays until the decider drops its answer, which may be after the RPC is done.
class AgreementService::Call final : public UnaryReactor,
                                     public std::enable_shared_from_this<Call> {
 public:
  Call(AgreementService* service, MessageBytes* response)
      : service_(service), response_(response) {}

  // Only the first call has an effect.
  void Answer(const absl::StatusOr<AgreementAnswer>& answer) {
    if (answered_.exchange(true)) return;
    if (!answer.ok()) {
      Finish(ToGrpc(answer.status()));
      return;
    }
    bool owns_buffer = false;
    Finish(grpc::SerializationTraits<AgreementAnswer>::Serialize(*answer, response_, &owns_buffer));
  }

 private:
  void OnCancel() override { Answer(absl::CancelledError("the caller has given up")); }
  void OnDone() override {
    const std::shared_ptr<Call> self = shared_from_this();  // destroyed without the lock
    absl::MutexLock lock(&service_->mutex_);
    service_->calls_.erase(self);
  }

  AgreementService* const service_;
  MessageBytes* const response_;
  std::atomic<bool> answered_{false};
};

absl::Status AgreementService::CheckReporter(const CallContext& context,
                                             const AgreementReport& report) const {
  ASSIGN_OR_RETURN(const int process, host_->PrimaryProcess(report.view(), report.slot()));
  return CheckCaller(context, *security_, {.role = Role::kShard, .index = process});
}

UnaryReactor* AgreementService::Agree(CallContext* context, const MessageBytes* request,
                                      MessageBytes* response) {
  const auto call = std::make_shared<Call>(this, response);
  absl::Status ended;
  {
    absl::MutexLock lock(&mutex_);
    calls_.insert(call);
    ended = ended_;
  }
  const absl::StatusOr<AgreementReport> report = ParseMessage<AgreementReport>(*request);
  absl::Status refused = ended.ok() ? report.status() : ended;
  if (refused.ok()) refused = CheckReporter(*context, *report);
  if (!refused.ok()) {
    call->Answer(refused);
  } else {
    host_->TakeReport(
        *report, [call](const absl::StatusOr<AgreementAnswer>& answer) { call->Answer(answer); });
  }
  return call.get();
}

void AgreementService::EndCalls(const absl::Status& status) {
  std::set<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
    calls = calls_;
  }
  for (const std::shared_ptr<Call>& call : calls) call->Answer(status);
}

}  // namespace evenshard
