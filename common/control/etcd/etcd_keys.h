#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_KEYS_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_KEYS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/etcd/rpc.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// The keys of a run in etcd, all of which begin with /evenshard/RUN/:
//
//   process/ps/I, process/worker/R  the process's ProcessState, with the process's lease
//   coordinator                     the process that makes the views, with its lease
//   view                            the present View
//   view/end                        a Verdict: how the run has ended
//   view/refused/ps/I, .../worker/R a Verdict on a process, with the coordinator's lease
//
// Processes follow the keys that begin with `view`; the coordinator follows `process/`.
class EtcdKeys {
 public:
  // `run` must not be empty or contain a slash.
  explicit EtcdKeys(absl::string_view run);

  const std::string& run() const { return run_; }  // "/evenshard/RUN/"
  std::string processes() const { return run_ + "process/"; }
  std::string Process(const ProcessState& state) const;
  std::string coordinator() const { return run_ + "coordinator"; }
  std::string view() const { return run_ + "view"; }
  std::string end() const { return run_ + "view/end"; }
  std::string Refused(const ProcessState& state) const;

 private:
  const std::string run_;
};

// "ps 1", "worker 3"
std::string NameOf(const ProcessState& state);

// These add a part to a transaction.
void CompareCreateRevision(const std::string& key, int64_t revision,
                           etcdserverpb::TxnRequest* request);  // 0: the key does not exist
void CompareModRevision(const std::string& key, int64_t revision,
                        etcdserverpb::TxnRequest* request);
void CompareLease(const std::string& key, int64_t lease, etcdserverpb::TxnRequest* request);
void PutOnSuccess(const std::string& key, const std::string& value, int64_t lease,
                  etcdserverpb::TxnRequest* request);
void ReadOnFailure(const std::string& key, etcdserverpb::TxnRequest* request);

// Returns the key that the i-th ReadOnFailure of a transaction has read, or nullptr if there is
// none. REQUIRES: the transaction has failed.
const mvccpb::KeyValue* ReadKey(const etcdserverpb::TxnResponse& response, int i);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_KEYS_H_
