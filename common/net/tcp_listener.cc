#include "common/net/tcp_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // netinet/tcp.h knows fewer fields
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/syn_filter.h"
#include "common/security/refusal_log.h"

namespace evenshard {
namespace {

constexpr absl::Duration kAcceptPause = absl::Milliseconds(10);
// Between two looks at what else has happened.
constexpr int kAcceptedAtOnce = 64;
// Between two looks at what those who only ask have sent, and whether a host may come in again.
constexpr absl::Duration kAskingPeriod = absl::Milliseconds(50);

absl::Status SystemError(int error, absl::string_view call) {
  const absl::Status failed = absl::ErrnoToStatus(error, call);
  return error == EADDRINUSE ? absl::AlreadyExistsError(failed.message()) : failed;
}

void SetInt(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

struct AddressOfSocket {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);

  sockaddr* any() { return reinterpret_cast<sockaddr*>(&storage); }
  in_port_t* port() {
    return storage.ss_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                         : &reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  }
};

// A socket that listens on `address`, whose port it sets. Accepted connections inherit its options.
absl::StatusOr<int> ListenOn(AddressOfSocket* address) {
  const int family = address->storage.ss_family;
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError(errno, "socket");
  absl::Cleanup close_fd = [fd] { close(fd); };
  SetInt(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  // [::] stands for IPv4 too.
  if (family == AF_INET6) SetInt(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Data that the peer does not acknowledge for so long ends the connection.
  SetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, absl::ToInt64Milliseconds(kKeepalive));
  if (bind(fd, address->any(), address->size) != 0) return SystemError(errno, "bind");
  if (listen(fd, SOMAXCONN) != 0) return SystemError(errno, "listen");
  if (getsockname(fd, address->any(), &address->size) != 0) {
    return SystemError(errno, "getsockname");
  }
  std::move(close_fd).Cancel();
  return fd;
}

// Where a connection comes from.
struct Source {
  std::string peer;  // as grpc::ServerContext::peer says
  std::string host;  // its address; of IPv6 the first half, since a host has all of the other one
};

Source SourceOf(const AddressOfSocket& address) {
  std::array<char, INET6_ADDRSTRLEN> text;
  if (address.storage.ss_family == AF_INET) {
    const auto& ip4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    inet_ntop(AF_INET, &ip4.sin_addr, text.data(), text.size());
    return {absl::StrCat("ipv4:", text.data(), ":", ntohs(ip4.sin_port)),
            std::string(reinterpret_cast<const char*>(&ip4.sin_addr), 4)};
  }
  const auto& ip6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  if (IN6_IS_ADDR_V4MAPPED(&ip6.sin6_addr)) {
    inet_ntop(AF_INET, &ip6.sin6_addr.s6_addr[12], text.data(), text.size());
    return {absl::StrCat("ipv4:", text.data(), ":", ntohs(ip6.sin6_port)),
            std::string(reinterpret_cast<const char*>(&ip6.sin6_addr) + 12, 4)};
  }
  inet_ntop(AF_INET6, &ip6.sin6_addr, text.data(), text.size());
  const std::string zone = ip6.sin6_scope_id == 0 ? "" : absl::StrCat("%25", ip6.sin6_scope_id);
  return {absl::StrCat("ipv6:%5B", text.data(), zone, "%5D:", ntohs(ip6.sin6_port)),
          std::string(reinterpret_cast<const char*>(&ip6.sin6_addr), 8)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Listen(const std::string& address,
                                                                 const Strangers& limits) {
  std::unique_ptr<TcpListener> listener(new TcpListener(limits));
  RETURN_IF_ERROR(listener->Bind(address));
  return listener;
}

void TcpListener::Start(Accepted accepted) {
  accepted_ = std::move(accepted);
  thread_ = std::thread([this] { Run(); });
}

absl::Status TcpListener::Bind(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), text.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> resolved(found, &freeaddrinfo);

  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return SystemError(errno, "epoll_create1");
  absl::Status failed;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    AddressOfSocket address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    if (port_ != 0) *address.port() = htons(port_);
    const absl::StatusOr<int> fd = ListenOn(&address);
    if (!fd.ok()) {
      // A host may have addresses of a family that this machine does not use, but where somebody
      // else listens, its other addresses must not make one process look like two.
      if (absl::IsAlreadyExists(fd.status())) return fd.status();
      failed = fd.status();
      continue;
    }
    port_ = ntohs(*address.port());
    listening_.push_back(*fd);
    epoll_event event = {.events = EPOLLIN, .data = {.fd = *fd}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, *fd, &event) != 0) return SystemError(errno, "epoll_ctl");
  }
  return listening_.empty() ? failed : absl::OkStatus();
}

TcpListener::~TcpListener() {
  Stop();
  if (epoll_ >= 0) close(epoll_);
}

void TcpListener::Stop() {
  stops_ = true;
  for (const int fd : listening_) shutdown(fd, SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
  for (const int fd : std::exchange(listening_, {})) close(fd);
  absl::MutexLock lock(&mutex_);
  while (!peer_of_.empty()) Forget(peer_of_.begin()->first);
}

void TcpListener::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = epoll_wait(epoll_, events.data(), events.size(), WaitMilliseconds());
    // The ends first: then no event is left of a connection whose number another one gets.
    std::vector<int> waited_at;
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (absl::c_linear_search(listening_, fd)) {
        waited_at.push_back(fd);
        continue;
      }
      if (events[i].events == EPOLLIN) continue;  // CloseLoud looks
      absl::MutexLock lock(&mutex_);
      Forget(fd);
    }
    for (const int listening : waited_at) {
      if (!AcceptFrom(listening)) return;
    }
    CloseOverdue();
    CloseLoud();
    BarHosts();
  }
}

void TcpListener::BarHosts() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> barred = gate_.Barred(clock_.Now());
  if (barred == barred_) return;
  barred_ = std::move(barred);
  // Whom the kernel lets through all the same is turned away here.
  for (const int listening : listening_) DropConnectionsFrom(barred_, listening);
}

int TcpListener::WaitMilliseconds() const {
  absl::MutexLock lock(&mutex_);
  // Whoever is not known only asks.
  const bool waits_for_none = asking_.empty() && barred_.empty();
  return waits_for_none ? -1 : absl::ToInt64Milliseconds(kAskingPeriod);
}

bool TcpListener::AcceptFrom(int listening) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    AddressOfSocket address;
    const int fd = accept4(listening, address.any(), &address.size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      const Source source = SourceOf(address);
      TakeIn(listening, fd, source.peer, source.host);
      continue;
    }
    if (errno == EAGAIN) return true;
    // A lack of descriptors is said even of a socket that was shut down.
    if (errno == EINVAL || stops_) return false;
    // Other errors concern one connection, or are temporary, like a lack of descriptors or memory.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    LogRefusal(absl::StrCat("a connection: ", SystemError(errno, "accept").message()));
    absl::SleepFor(kAcceptPause);
    return true;  // meanwhile others may be overdue, whose descriptors are needed
  }
  return true;
}

void TcpListener::TakeIn(int listening, int connection, const std::string& peer,
                         const std::string& host) {
  absl::Cleanup close_connection = [connection] { close(connection); };
  RemoveFilter(connection);
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    // First of all, since a flood of connections ends here.
    if (!gate_.LetsIn(host, now)) {
      // A reset takes less of the kernel's time than an end that both sides agree on.
      const linger at_once = {.l_onoff = 1, .l_linger = 0};
      setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      return LogRefusal(
          absl::StrCat("a connection of ", peer, ": there are too many (limits.strangers)"));
    }
    const int copy = fcntl(connection, F_DUPFD_CLOEXEC, 0);
    // Whatever those who only ask send is looked at when it comes.
    epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.fd = copy}};
    // A connection of which nobody would see the end is not taken.
    if (copy < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, copy, &event) != 0) {
      LogRefusal(
          absl::StrCat("a connection of ", peer, ": ", SystemError(errno, "copy").message()));
      if (copy >= 0) close(copy);
      return;
    }
    peer_of_[copy] = peer;
    copy_of_[peer] = copy;
    asking_.emplace(copy, Asking{host, AskingLimit(limits_, now)});
    if (const std::optional<int> goes = gate_.Arrive(copy, host, now); goes.has_value()) {
      Close(*goes, "others need its place (limits.strangers)");
    }
  }
  std::move(close_connection).Cancel();
  accepted_(listening, connection);
}

void TcpListener::BecomeKnown(const std::string& peer, bool sends_data) {
  absl::MutexLock lock(&mutex_);
  const auto copy = copy_of_.find(peer);
  if (copy == copy_of_.end()) return;
  if (sends_data && asking_.erase(copy->second) > 0) {
    epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data = {.fd = copy->second}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, copy->second, &event);
  }
  if (const auto goes = gate_.BecomeKnown(copy->second, sends_data); goes.has_value()) {
    Close(*goes, "others need its place (limits.strangers)");
  }
}

void TcpListener::CloseOverdue() {
  absl::MutexLock lock(&mutex_);
  for (const int copy : gate_.TakeOverdue(clock_.Now())) {
    Close(copy, "it made no call that it may make (limits.strangers.handshake_seconds)");
  }
}

void TcpListener::CloseLoud() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  std::unordered_map<std::string, double> level_of_host;
  std::vector<std::pair<double, int>> loudest;
  for (auto& [copy, asking] : asking_) {
    tcp_info info = {};
    socklen_t size = sizeof(info);
    if (getsockopt(copy, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    const double level = asking.limit.Level(info.tcpi_bytes_received, info.tcpi_bytes_acked, now);
    level_of_host[asking.host] += level;
    loudest.emplace_back(level, copy);
  }
  absl::c_sort(loudest, std::greater<>());
  for (const auto& [level, copy] : loudest) {
    double& of_host = level_of_host[asking_.at(copy).host];
    if (of_host <= limits_.asking_burst_bytes()) continue;
    of_host -= level;
    gate_.Shun(copy, now);
    Close(copy, "its host sends more than those who ask");
  }
}

void TcpListener::Close(int copy, absl::string_view why) {
  LogRefusal(absl::StrCat("a connection of ", peer_of_[copy], ": ", why));
  // After shutdown(2) gRPC would still read what has come, which may be megabytes of calls.
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(copy, &nobody, sizeof(nobody));
  Forget(copy);
}

void TcpListener::Forget(int copy) {
  const auto peer = peer_of_.find(copy);
  if (peer == peer_of_.end()) return;
  gate_.End(copy);
  // The peer may have a new connection from the same port by now.
  const auto newest = copy_of_.find(peer->second);
  if (newest != copy_of_.end() && newest->second == copy) copy_of_.erase(newest);
  peer_of_.erase(peer);
  asking_.erase(copy);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, copy, nullptr);
  close(copy);
}

ConnectionGate::Counts TcpListener::counts() const {
  absl::MutexLock lock(&mutex_);
  return gate_.counts();
}

}  // namespace evenshard
