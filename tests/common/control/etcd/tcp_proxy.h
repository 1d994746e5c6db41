#ifndef EVENSHARD_TESTS_COMMON_CONTROL_ETCD_TCP_PROXY_H_
#define EVENSHARD_TESTS_COMMON_CONTROL_ETCD_TCP_PROXY_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace evenshard {

// Forwards connections to a port of this machine, or to a unix socket, as a network does that can
// stop to carry anything and can be slow. Thread-safe.
class TcpProxy {
 public:
  // A unix socket at which somebody listens. The proxy takes its place.
  struct InFrontOf {
    std::string path;
  };
  explicit TcpProxy(const InFrontOf& place) : target_(0), unix_path_(place.path + ".behind") {
    REQUIRE(rename(place.path.c_str(), unix_path_.c_str()) == 0);
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = At(place.path);
    REQUIRE(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listener_, 64) == 0);
    Start();
  }

  explicit TcpProxy(int target, const std::string& unix_path = "")
      : TcpProxy(Silent{target}, unix_path) {
    Listen();
  }

  // Has a port, at which connections are refused until Listen.
  struct Silent {
    int target;
  };
  explicit TcpProxy(const Silent& silent, const std::string& unix_path = "")
      : target_(silent.target), unix_path_(unix_path) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    REQUIRE(bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  void Listen() {
    REQUIRE(listen(listener_, 16) == 0);
    Start();
  }

  ~TcpProxy() {
    std::vector<std::thread> threads;
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
      shutdown(listener_, SHUT_RDWR);
      for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
    }
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        threads.swap(threads_);
      }
      if (threads.empty()) break;
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    }
    for (const int fd : fds_) close(fd);
    close(listener_);
  }

  std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }

  // How many connections there have been.
  size_t connections() const {
    absl::MutexLock lock(&mutex_);
    return fds_.size() / 2;
  }

  // How many neither end has closed.
  size_t open_connections() const {
    absl::MutexLock lock(&mutex_);
    return open_;
  }
  // Ends all connections.
  void Cut() {
    absl::MutexLock lock(&mutex_);
    for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
  }

  // From now on nothing gets through, in connections that are open or new, until Release.
  void Hold() { Set(&held_, true); }
  void Release() {
    Set(&held_, false);
    absl::MutexLock lock(&mutex_);
    held_client_ = -1;
  }
  // The same for the connections of one process, to a unix socket.
  void HoldFrom(pid_t client) {
    absl::MutexLock lock(&mutex_);
    held_client_ = client;
  }

  // Makes everything that gets through late by this time.
  void Delay(absl::Duration delay) {
    absl::MutexLock lock(&mutex_);
    delay_ = delay;
  }

 private:
  void Start() {
    absl::MutexLock lock(&mutex_);  // the thread adds others at once
    threads_.emplace_back([this] { Accept(); });
  }

  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  static sockaddr_un At(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }
  // -1 if it cannot be known.
  static pid_t ProcessAt(int fd) {
    ucred peer = {};
    socklen_t size = sizeof(peer);
    const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    return known && peer.pid > 0 ? peer.pid : -1;
  }

  void Set(bool* flag, bool value) {
    absl::MutexLock lock(&mutex_);
    *flag = value;
  }

  void Accept() {
    while (true) {
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      const int server =
          socket(unix_path_.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      absl::MutexLock lock(&mutex_);
      fds_.push_back(client);
      fds_.push_back(server);
      if (ended_ || !Connect(server)) {
        shutdown(client, SHUT_RDWR);
        continue;
      }
      const pid_t pid = ProcessAt(client);
      ++open_;
      threads_.emplace_back([this, client, server, pid] {
        Forward(client, server, pid);
        absl::MutexLock ended(&mutex_);
        --open_;
      });
      threads_.emplace_back([this, client, server, pid] { Forward(server, client, pid); });
    }
  }

  bool Connect(int fd) const {
    if (unix_path_.empty()) {
      const sockaddr_in address = Loopback(target_);
      return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    }
    const sockaddr_un address = At(unix_path_);
    return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }

  void Forward(int from, int to, pid_t client) {
    char buffer[16384];
    while (true) {
      const ssize_t size = read(from, buffer, sizeof(buffer));
      absl::Duration delay;
      {
        absl::MutexLock lock(&mutex_);
        const auto may_pass = [this, client]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
          return ended_ || !(held_ || (client >= 0 && client == held_client_));
        };
        mutex_.Await(absl::Condition(&may_pass));
        if (ended_ || size <= 0) break;
        delay = delay_;
      }
      absl::SleepFor(delay);
      if (send(to, buffer, size, MSG_NOSIGNAL) != size) break;
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }

  const int target_;
  const std::string unix_path_;  // in place of target_ if it is not empty
  int listener_ = -1;
  int port_ = 0;

  mutable absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  pid_t held_client_ ABSL_GUARDED_BY(mutex_) = -1;
  absl::Duration delay_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> fds_ ABSL_GUARDED_BY(mutex_);
  size_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CONTROL_ETCD_TCP_PROXY_H_
