#include "server/rpc/peers/agreement_client.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/net/channel_options.h"
#include "common/net/status_conversion.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

namespace evenshard {

struct AgreementClient::Call {
  std::shared_ptr<Agreement::Stub> stub;
  grpc::ClientContext context;
  AgreementReport report;
  AgreementAnswer answer;
};

AgreementClient::~AgreementClient() {
  std::list<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls = calls_;
  }
  for (const std::shared_ptr<Call>& call : calls) call->context.TryCancel();
  running_.AwaitZero();
}

void AgreementClient::Report(const ProcessId& decider, const AgreementReport& report,
                             AgreementDecider::Answer answer) {
  auto call = std::make_shared<Call>();
  call->report = report;
  call->context.set_deadline(
      absl::ToChronoTime(absl::Now() + absl::Seconds(config_.limits().exchange_seconds())));
  std::list<std::shared_ptr<Call>>::iterator place;
  {
    absl::MutexLock lock(&mutex_);
    if (address_ != decider.address()) {
      address_ = decider.address();
      stub_ = Agreement::NewStub(CreateChannel(
          address_, config_, {.role = Role::kShard, .index = static_cast<int>(decider.process())}));
    }
    call->stub = stub_;
    place = calls_.insert(calls_.end(), call);
  }
  running_.Add();
  call->stub->async()->Agree(
      &call->context, &call->report, &call->answer,
      [this, call, place, answer = std::move(answer)](const grpc::Status& status) mutable {
        {
          absl::MutexLock lock(&mutex_);
          calls_.erase(place);
        }
        if (status.ok()) {
          answer(call->answer);
        } else {
          answer(FromGrpc(status));
        }
        call.reset();  // and its channel, before the client may end
        running_.Remove();
      });
}

}  // namespace evenshard
