#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_CLIENT_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_machine.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "proto/config.pb.h"
#include "proto/etcd/rpc.pb.h"

namespace evenshard {

// Calls to an etcd cluster. Each call blocks. It tries every endpoint at most once, beginning with
// the one that answered last, each for `timeout` at most. Requests that must not be applied twice
// carry a comparison, because an answer may be lost. Thread-safe.
//
// With a user, each call has a token, which the client asks for when it has none, or when etcd does
// not take it any more.
//
// Errors of all calls: UNAVAILABLE with each endpoint and what happened there, if none has
// answered; then a change may have been made or not. CANCELLED soon after `stop` is requested.
// Otherwise the refusal of the endpoint that answered, with its name.
class EtcdClient {
 public:
  struct Options {
    std::vector<std::string> endpoints;  // "host:port", at least one
    Recovery::Etcd access = {};          // its TLS files and its user; the endpoints are not used
    absl::Duration timeout = absl::Seconds(1);
  };

  explicit EtcdClient(const Options& options);
  ~EtcdClient();

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    const std::stop_token& stop);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                const std::stop_token& stop);

  // A new lease; its TTL is at least `ttl`, in whole seconds.
  absl::StatusOr<etcdserverpb::LeaseGrantResponse> Grant(absl::Duration ttl,
                                                         const std::stop_token& stop);
  // Renews the lease. Errors: also NOT_FOUND if it has ended.
  absl::Status KeepAlive(int64_t lease, const std::stop_token& stop);
  // Ends the lease, which deletes its keys. OK if it has ended before.
  absl::Status Revoke(int64_t lease, const std::stop_token& stop);

  // See EtcdRuntime. The client must outlive the stream.
  std::unique_ptr<EtcdWatchStream> Watch(const etcdserverpb::WatchCreateRequest& request,
                                         std::function<void()> on_news);

  absl::Duration timeout() const { return timeout_; }

 private:
  struct Endpoint;
  class WatchStream;

  // Calls `call(endpoint, context)` for one endpoint after the other. `what` completes "cannot".
  template <typename Call>
  grpc::Status CallOnce(const Endpoint& endpoint, grpc::ClientContext* context, const Call& call);
  // A token of etcd for its user. Errors: etcd's; UNAUTHENTICATED if the password cannot be read.
  grpc::Status Authenticate(const Endpoint& endpoint,
                            std::chrono::system_clock::time_point deadline);
  std::string token() const;
  template <typename Call>
  absl::Status Try(absl::string_view what, const std::stop_token& stop, const Call& call);
  // Prefers the endpoint after `index`, unless another thread has made another choice.
  void Avoid(size_t index);

  // Constant after construction.
  const absl::Duration timeout_;
  const Recovery::Etcd access_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;

  std::atomic<size_t> preferred_{0};  // the endpoint that answered last
  mutable absl::Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_CLIENT_H_
