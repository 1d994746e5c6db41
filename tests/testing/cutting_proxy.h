#ifndef EVENSHARD_TESTS_TESTING_CUTTING_PROXY_H_
#define EVENSHARD_TESTS_TESTING_CUTTING_PROXY_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "tests/testing/dice.h"

namespace evenshard {

// Passes TCP connections on to a shard, and cuts them after random numbers of bytes, until it has
// cut as many as it was told to.
class CuttingProxy {
 public:
  // `to` is "127.0.0.1:PORT". A connection is cut after at most `most_bytes` bytes.
  CuttingProxy(const std::string& to, uint64_t seed, int cuts, int most_bytes)
      : most_bytes_(most_bytes), dice_(seed), cuts_left_(cuts) {
    uint32_t port = 0;
    REQUIRE(absl::SimpleAtoi(absl::StripPrefix(to, "127.0.0.1:"), &port));
    to_ = Loopback(port);
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in own = Loopback(0);
    socklen_t size = sizeof(own);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&own), size) == 0);
    REQUIRE(listen(listener_, 64) == 0);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) == 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~CuttingProxy() {
    ends_ = true;
    acceptor_.join();
    for (std::thread& connection : connections_) connection.join();
    close(listener_);
  }

  const std::string& address() const { return address_; }

 private:
  static constexpr int kPollMilliseconds = 20;

  static sockaddr_in Loopback(uint32_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Accept() {
    while (!ends_) {
      pollfd waiting = {.fd = listener_, .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, kPollMilliseconds) != 1) continue;
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) continue;
      absl::MutexLock lock(&mutex_);
      const int64_t bytes = dice_.Int(0, most_bytes_);
      const bool resets = dice_.Once(2);
      connections_.emplace_back([this, client, bytes, resets] { Pass(client, bytes, resets); });
    }
  }

  // Passes bytes both ways, and cuts after so many of them if there are cuts left then.
  void Pass(int client, int64_t bytes, bool resets) {
    const int shard = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(shard, reinterpret_cast<sockaddr*>(&to_), sizeof(to_)) == 0) {
      pollfd ends[2] = {{.fd = client, .events = POLLIN, .revents = 0},
                        {.fd = shard, .events = POLLIN, .revents = 0}};
      bool is_open = true;
      while (is_open && !ends_) {
        if (poll(ends, 2, kPollMilliseconds) <= 0) continue;
        for (int from = 0; from < 2 && is_open; ++from) {
          if (ends[from].revents != 0) is_open = PassOn(ends[from].fd, ends[1 - from].fd, &bytes);
        }
      }
    }
    if (resets) {
      const linger at_once = {.l_onoff = 1, .l_linger = 0};
      setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      setsockopt(shard, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    close(client);
    close(shard);
  }

  // Returns false if the connection is over or cut.
  bool PassOn(int from, int to, int64_t* bytes) {
    char buffer[4096];
    const ssize_t read = recv(from, buffer, sizeof(buffer), 0);
    if (read <= 0) return false;
    *bytes -= read;
    if (*bytes < 0 && cuts_left_ > 0 && cuts_left_-- > 0) return false;
    for (ssize_t sent = 0; sent < read;) {
      const ssize_t part = send(to, buffer + sent, read - sent, MSG_NOSIGNAL);
      if (part <= 0) return false;
      sent += part;
    }
    return true;
  }

  const int most_bytes_;
  sockaddr_in to_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> ends_{false};
  absl::Mutex mutex_;
  Dice dice_;
  std::atomic<int> cuts_left_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_CUTTING_PROXY_H_
