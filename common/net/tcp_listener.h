#ifndef EVENSHARD_COMMON_NET_TCP_LISTENER_H_
#define EVENSHARD_COMMON_NET_TCP_LISTENER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/net/asking_limit.h"
#include "common/net/connection_gate.h"
#include "proto/config.pb.h"

namespace evenshard {

// Listens on TCP, and passes on the connections that a ConnectionGate lets in. They are not left to
// gRPC, which accepts as many as there are. Thread-safe.
class TcpListener {
 public:
  // Called in this object's thread with a connection, which is non-blocking and then the callee's,
  // and the socket that it came to. The callee ends it with shutdown(2), as gRPC does: only so this
  // object sees the end.
  using Accepted = std::function<void(int listening, int connection)>;

  // Listens on all addresses of the host in `address`, "HOST:PORT" or "[IPv6]:PORT". Nobody else
  // may listen on one of them. Connections wait for Start. Errors: ALREADY_EXISTS if somebody does;
  // otherwise what the system says.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Listen(const std::string& address,
                                                             const Strangers& limits);
  // Calls Stop.
  ~TcpListener();

  // The bound port, which differs from a port 0 of the address.
  int port() const { return port_; }

  // REQUIRES: it was not called before, nor Stop.
  void Start(Accepted accepted);

  // A call of `peer`, as gRPC calls it, was allowed. `sends_data`: it is of somebody who sends
  // gradients or the like; others may send requests only (common/net/asking_limit.h).
  void BecomeKnown(const std::string& peer, bool sends_data);

  // Accepts no more connections. Those that there are stay open. Idempotent.
  void Stop();

  ConnectionGate::Counts counts() const;

 private:
  explicit TcpListener(const Strangers& limits) : limits_(limits), gate_(limits) {}

  absl::Status Bind(const std::string& address);
  void Run();
  // Takes in those that wait at a socket. Returns false after Stop.
  bool AcceptFrom(int listening);
  void TakeIn(int listening, int connection, const std::string& peer, const std::string& host);
  void CloseOverdue();
  void CloseLoud();
  // Leaves it to the kernel to turn away the hosts from which nobody comes in now.
  void BarHosts();
  // When to look again, in milliseconds, or -1.
  int WaitMilliseconds() const;
  // Ends a connection at both sides, and says why in the log.
  void Close(int copy, absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(int copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Strangers limits_;
  const RealClock clock_;
  int port_ = 0;
  int epoll_ = -1;
  std::vector<int> listening_;
  Accepted accepted_;
  std::thread thread_;
  std::atomic<bool> stops_{false};

  mutable absl::Mutex mutex_;
  ConnectionGate gate_ ABSL_GUARDED_BY(mutex_);
  // Connections are known by copies of their descriptors, by which epoll tells their ends.
  std::unordered_map<int, std::string> peer_of_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, int> copy_of_ ABSL_GUARDED_BY(mutex_);
  struct Asking {
    std::string host;
    AskingLimit limit;
  };
  std::unordered_map<int, Asking> asking_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> barred_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_TCP_LISTENER_H_
