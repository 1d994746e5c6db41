#ifndef EVENSHARD_COMMON_CONTROL_ETCD_ETCD_MACHINE_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_ETCD_MACHINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/etcd/rpc.pb.h"

namespace evenshard {

// Grants a lease, or renews one.
struct EtcdLeaseRequest {
  int64_t id = 0;      // 0: grant one
  absl::Duration ttl;  // whole seconds
};

using EtcdRequest =
    std::variant<etcdserverpb::RangeRequest, etcdserverpb::TxnRequest, EtcdLeaseRequest>;
// To an EtcdLeaseRequest the lease's id. Errors:
// - UNAVAILABLE if etcd has not answered; then a change may have been made or not;
// - NOT_FOUND if the request's lease has ended;
// - another refusal of etcd.
using EtcdAnswer =
    absl::StatusOr<std::variant<etcdserverpb::RangeResponse, etcdserverpb::TxnResponse, int64_t>>;

// Decides what to ask of etcd, and when, without a thread, a clock or a network: these are its
// runner's. It has one request under way at a time.
class EtcdMachine {
 public:
  // What comes next: a request, or a time until which there is nothing to do, unless
  // EtcdRunner::Wake is called.
  using Step = std::variant<absl::Time, EtcdRequest>;

  virtual ~EtcdMachine() = default;
  // Does what is due. Called again after each Answered and each Wake, and may be called at any
  // other time while no request is under way.
  virtual Step Next(absl::Time now) = 0;
  // Takes the answer to the request that Next has returned.
  virtual void Answered(const EtcdAnswer& answer, absl::Time now) = 0;
};

// Runs a machine. It makes one call of it at a time.
class EtcdRunner {
 public:
  // Calls Stop.
  virtual ~EtcdRunner() = default;
  // REQUIRES: called once, by the thread that made the runner.
  virtual void Start() = 0;
  // Blocks until the call that is under way has ended. No other follows.
  virtual void Stop() = 0;
  // Has the machine's Next called soon. Thread-safe.
  virtual void Wake() = 0;
};

// A watch over one connection to one endpoint, which its EtcdRuntime must outlive. Destroying it
// ends the watch. One thread calls Next and the other methods.
class EtcdWatchStream {
 public:
  virtual ~EtcdWatchStream() = default;

  // Returns the next response if it has come. Errors, once the stream has ended: why, with the
  // endpoint; the client then prefers another endpoint.
  virtual absl::StatusOr<std::optional<etcdserverpb::WatchResponse>> Next() = 0;

  // Asks etcd for a response without events, as a sign of life.
  virtual void RequestProgress() = 0;

  // Makes the client prefer another endpoint, and returns the error that says so.
  virtual absl::Status GiveUp(absl::string_view why) = 0;
};

// Where a process's machines run, and how they reach etcd. Thread-safe.
class EtcdRuntime {
 public:
  virtual ~EtcdRuntime() = default;

  // Both must outlive the runner.
  virtual std::unique_ptr<EtcdRunner> MakeRunner(EtcdMachine* machine) = 0;

  // Opens a watch at the endpoint that answered last. Does not block. `on_news` is called by
  // another thread whenever Next has something new. A stream from an endpoint that has lost its
  // leader ends.
  virtual std::unique_ptr<EtcdWatchStream> Watch(const etcdserverpb::WatchCreateRequest& request,
                                                 std::function<void()> on_news) = 0;

  // Ends a lease, which deletes its keys. Blocks for a few seconds at most. Errors: as of
  // EtcdAnswer; then the lease ends by itself.
  virtual absl::Status Revoke(int64_t lease) = 0;

  // How long an answer may take.
  virtual absl::Duration timeout() const = 0;
  virtual const Clock& clock() const = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_ETCD_MACHINE_H_
