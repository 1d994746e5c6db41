#ifndef EVENSHARD_SERVER_RPC_PEERS_AGREEMENT_CLIENT_H_
#define EVENSHARD_SERVER_RPC_PEERS_AGREEMENT_CLIENT_H_

#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/pending_count.h"
#include "proto/agreement.grpc.pb.h"
#include "proto/config.pb.h"
#include "server/recovery/agreement_reporter.h"

namespace evenshard {

// Brings reports to the primary of slot 0 by the Agreement service, on a connection of its own,
// which never queues behind gradients. Thread-safe.
class AgreementClient final : public AgreementTransport {
 public:
  // `config` must outlive the client.
  explicit AgreementClient(const ClusterConfig* config) : config_(*config) {}
  // Ends the calls that are not answered, and waits for them.
  ~AgreementClient() override;

  void Report(const ProcessId& decider, const AgreementReport& report,
              AgreementDecider::Answer answer) override;

 private:
  struct Call;

  const ClusterConfig& config_;
  absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);  // of the latest decider
  std::shared_ptr<Agreement::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  PendingCount running_;  // calls whose callback has not returned
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PEERS_AGREEMENT_CLIENT_H_
