#ifndef EVENSHARD_TESTS_COMMON_CONTROL_ETCD_ETCD_SERVER_H_
#define EVENSHARD_TESTS_COMMON_CONTROL_ETCD_ETCD_SERVER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_client.h"
#include "tests/testing/await.h"
#include "tests/testing/scratch_folder.h"
#include "tools/launch/child_process.h"

// Ends a test case that needs etcd if it is not installed.
#define REQUIRE_ETCD()                                                               \
  if (!::evenshard::EtcdServer::IsInstalled()) {                                     \
    WARN("etcd is not installed (tools/setup installs it), so this was not tested"); \
    return;                                                                          \
  } else                                                                             \
    static_assert(true)

namespace evenshard {

// Returns a port of this machine that is free at the moment.
inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

// A real etcd of one member, with a folder of its own. The destructor kills it. Used by the test's
// main thread, with which it ends in any case.
class EtcdServer {
 public:
  static bool IsInstalled() { return std::filesystem::exists(kProgram); }

  EtcdServer() : EtcdServer({}, {}) {}
  // With further flags, and what a client needs because of them.
  EtcdServer(std::vector<std::string> flags, Recovery::Etcd access)
      : flags_(std::move(flags)), access_(std::move(access)) {
    Start();
  }
  ~EtcdServer() { Kill(); }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }
  int port() const { return port_; }
  // Returns the options of a client that waits where the machine stalls.
  EtcdClient::Options patient() const {
    return {.endpoints = {endpoint()}, .access = access_, .timeout = absl::Seconds(30)};
  }

  void Kill() {
    if (process_.pid <= 0) return;
    kill(process_.pid, SIGKILL);
    waitpid(process_.pid, nullptr, 0);
    close(process_.output);
    process_.pid = -1;
  }
  void Pause() { REQUIRE(kill(process_.pid, SIGSTOP) == 0); }
  void Resume() { REQUIRE(kill(process_.pid, SIGCONT) == 0); }

  // Starts it, with what it had before, and waits until it answers.
  void Start() {
    const std::string url =
        absl::StrCat(access_.has_authority() ? "https://" : "http://", endpoint());
    const std::string peer = absl::StrCat("http://127.0.0.1:", peer_port_);
    std::vector<std::string> command = {kProgram,
                                        "--name=test",
                                        "--data-dir=" + folder_.Path("data"),
                                        "--listen-client-urls=" + url,
                                        "--advertise-client-urls=" + url,
                                        "--listen-peer-urls=" + peer,
                                        "--initial-advertise-peer-urls=" + peer,
                                        "--initial-cluster=test=" + peer,
                                        "--logger=zap",
                                        "--log-outputs=" + folder_.Path("log")};
    command.insert(command.end(), flags_.begin(), flags_.end());
    const auto started = StartChild(command);
    INFO(started.status().message());
    REQUIRE(started.ok());
    process_ = *started;
    EtcdClient client(patient());
    etcdserverpb::RangeRequest request;
    request.set_key("/");
    INFO(folder_.Read("log"));
    AwaitTrue([&] { return client.Range(request, std::stop_token()).ok(); });
  }

 private:
  static constexpr char kProgram[] = "/usr/bin/etcd";

  const std::vector<std::string> flags_;
  const Recovery::Etcd access_;
  const ScratchFolder folder_;
  const int port_ = FreePort();
  const int peer_port_ = FreePort();
  ChildProcess process_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CONTROL_ETCD_ETCD_SERVER_H_
