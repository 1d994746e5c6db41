#include "common/net/tcp_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/syn_filter.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/no_descriptors.h"

namespace evenshard {
namespace {

using Catch::Contains;

Strangers Limits() {
  Strangers limits;
  limits.set_handshake_seconds(30);
  return limits;
}

bool Comes(const std::function<bool()>& state) {
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (!state() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(2));
  return state();
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Whether somebody at an address of this machine who connects hears anything within the time.
bool IsAnswered(const char* from, const sockaddr_in& to, absl::Duration time) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in own = Loopback(0);
  own.sin_addr.s_addr = inet_addr(from);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0);
  connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  pollfd wait = {fd, POLLOUT, 0};
  const bool answered = poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(time))) == 1;
  close(fd);
  return answered;
}

// A connection of a client.
class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(port);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    socklen_t size = sizeof(address);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    peer_ = absl::StrCat("ipv4:127.0.0.1:", ntohs(address.sin_port));
  }
  Client(const Client&) = delete;
  ~Client() { close(fd_); }

  const std::string& peer() const { return peer_; }
  // Whether the server ends the connection within 20 s.
  bool IsEnded() const {
    pollfd wait = {fd_, POLLIN, 0};
    char byte;
    return poll(&wait, 1, 20000) == 1 && read(fd_, &byte, 1) <= 0;
  }
  // Sends what the server takes until it ends the connection.
  void Send(const std::string& text) const { send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  bool IsOpen() const {
    pollfd wait = {fd_, POLLIN, 0};
    return poll(&wait, 1, 0) == 0;
  }

 private:
  const int fd_;
  std::string peer_;
};

// What gRPC does with the connections.
class Taker {
 public:
  ~Taker() {
    for (const int fd : fds_) close(fd);
  }
  void Take(int fd) {
    absl::MutexLock lock(&mutex_);
    fds_.push_back(fd);
  }
  void Read(const std::stop_token& stop) {
    std::vector<char> bytes(1 << 16);
    while (!stop.stop_requested()) {
      absl::MutexLock lock(&mutex_);
      for (const int fd : fds_) {
        while (read(fd, bytes.data(), bytes.size()) > 0) {
        }
      }
    }
  }
  // What has come on the first connection and was not read.
  ssize_t ReadFirst() {
    absl::MutexLock lock(&mutex_);
    std::array<char, 16> bytes;
    return read(fds_.front(), bytes.data(), bytes.size());
  }
  void EndAll() {
    absl::MutexLock lock(&mutex_);
    for (const int fd : fds_) {
      shutdown(fd, SHUT_RDWR);
      close(fd);
    }
    fds_.clear();
  }
  size_t taken() {
    absl::MutexLock lock(&mutex_);
    return fds_.size();
  }

 private:
  absl::Mutex mutex_;
  std::vector<int> fds_;
};

std::unique_ptr<TcpListener> Started(const Strangers& limits, Taker* taker) {
  absl::StatusOr<std::unique_ptr<TcpListener>> listener =
      TcpListener::Listen("127.0.0.1:0", limits);
  REQUIRE(listener.ok());
  (*listener)->Start([taker](int, int connection) { taker->Take(connection); });
  return *std::move(listener);
}

TEST_CASE("connections are passed on, and counted until either end ends them") {
  Taker taker;
  const auto listener = Started(Limits(), &taker);
  {
    const Client first(listener->port());
    const Client second(listener->port());
    CHECK(Comes([&] { return taker.taken() == 2; }));
    CHECK(listener->counts().open == 2);
    CHECK(listener->counts().unknown == 2);
    listener->BecomeKnown(first.peer(), /*sends_data=*/true);
    CHECK(listener->counts().unknown == 1);
    listener->BecomeKnown("ipv4:127.0.0.1:1", /*sends_data=*/true);
    CHECK(listener->counts().unknown == 1);
  }
  CHECK(Comes([&] { return listener->counts().open == 0; }));
  const Client third(listener->port());
  CHECK(Comes([&] { return taker.taken() == 3; }));
  taker.EndAll();
  CHECK(Comes([&] { return listener->counts().open == 0; }));
  CHECK(third.IsEnded());
  CHECK(listener->counts().accepted == 3);
}

TEST_CASE("who is too much is closed at once, and who is known stays") {
  const CapturedLog log;
  Strangers limits = Limits();
  limits.set_handshakes(1);
  limits.set_connections(3);
  Taker taker;
  const auto listener = Started(limits, &taker);
  const Client known(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 1; }));
  listener->BecomeKnown(known.peer(), /*sends_data=*/true);
  const Client pushed_out(listener->port());
  const Client stays(listener->port());
  CHECK(pushed_out.IsEnded());
  REQUIRE(Comes([&] { return taker.taken() == 3; }));
  CHECK(listener->counts().pushed_out == 1);
  listener->BecomeKnown(stays.peer(), /*sends_data=*/true);
  const Client last(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 4; }));
  listener->BecomeKnown(last.peer(), /*sends_data=*/true);
  const Client turned_away(listener->port());
  CHECK(turned_away.IsEnded());
  CHECK(listener->counts().turned_away == 1);
  CHECK(known.IsOpen());
  CHECK(stays.IsOpen());
  CHECK(last.IsOpen());
  CHECK_THAT(log.text(), Contains(absl::StrCat("refused: a connection of ", pushed_out.peer(),
                                               ": others need its place")));
  CHECK_THAT(log.text(), Contains(absl::StrCat("refused: a connection of ", turned_away.peer(),
                                               ": there are too many")));
}

TEST_CASE("of those who only ask the oldest one is closed if they are too many") {
  const CapturedLog log;
  Strangers limits = Limits();
  limits.set_readers(1);
  Taker taker;
  const auto listener = Started(limits, &taker);
  const Client first(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 1; }));
  listener->BecomeKnown(first.peer(), /*sends_data=*/false);
  const Client second(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 2; }));
  listener->BecomeKnown(second.peer(), /*sends_data=*/false);
  CHECK(first.IsEnded());
  CHECK(second.IsOpen());
  CHECK(listener->counts().open == 1);
  CHECK_THAT(log.text(), Contains(absl::StrCat("refused: a connection of ", first.peer(),
                                               ": others need its place")));
}

TEST_CASE("who is not known in time is closed") {
  const CapturedLog log;
  Strangers limits = Limits();
  limits.set_handshake_seconds(0.05);
  Taker taker;
  const auto listener = Started(limits, &taker);
  const Client silent(listener->port());
  CHECK(silent.IsEnded());
  CHECK(listener->counts().timed_out == 1);
  CHECK_THAT(log.text(), Contains("it made no call that it may make"));
}

TEST_CASE("what a connection has sent before it is closed is not read any more") {
  Strangers limits = Limits();
  limits.set_handshake_seconds(0.2);
  Taker taker;
  const auto listener = Started(limits, &taker);
  const Client client(listener->port());
  client.Send("a call");
  CHECK(client.IsEnded());
  REQUIRE(taker.taken() == 1);
  CHECK(taker.ReadFirst() <= 0);
}

TEST_CASE("who only asks is closed if it sends much, and who sends data is not") {
  const CapturedLog log;
  Taker taker;
  const auto listener = Started(Limits(), &taker);
  const Client stranger(listener->port());
  const Client reader(listener->port());
  const Client worker(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 3; }));
  listener->BecomeKnown(reader.peer(), /*sends_data=*/false);
  listener->BecomeKnown(worker.peer(), /*sends_data=*/true);
  const std::string much(2 * Limits().asking_burst_bytes(), 'x');
  std::jthread reading([&](const std::stop_token& stop) { taker.Read(stop); });
  for (const Client* client : {&stranger, &reader, &worker}) client->Send(much);
  CHECK(stranger.IsEnded());
  CHECK(reader.IsEnded());
  CHECK(worker.IsOpen());
  CHECK_THAT(log.text(), Contains("its host sends more than those who ask"));
}

TEST_CASE("those of a host who only ask have one burst together, and who has sent most goes") {
  Strangers limits = Limits();
  limits.set_asking_bytes_per_second(1 << 10);
  Taker taker;
  const auto listener = Started(limits, &taker);
  const Client quiet(listener->port());
  const Client loud(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 2; }));
  for (const Client* each : {&quiet, &loud}) {
    listener->BecomeKnown(each->peer(), /*sends_data=*/false);
  }
  const std::jthread reading([&](const std::stop_token& stop) { taker.Read(stop); });
  quiet.Send(std::string(limits.asking_burst_bytes() * 2 / 5, 'x'));
  loud.Send(std::string(limits.asking_burst_bytes() * 3 / 4, 'x'));
  CHECK(loud.IsEnded());
  CHECK(quiet.IsOpen());
  CHECK(listener->counts().loud == 1);
}

TEST_CASE("the kernel drops what comes from a host that is too fast, and no other's") {
  const int any = socket(AF_INET, SOCK_STREAM, 0);
  const bool can_drop = DropConnectionsFrom({std::string(4, '\1')}, any);
  close(any);
  if (!can_drop) {
    WARN("not tested: the kernel takes no filter now");
    return;
  }
  const CapturedLog log;
  Strangers limits = Limits();
  limits.set_handshakes_per_second(4);  // two from one host
  Taker taker;
  const auto listener = Started(limits, &taker);
  const sockaddr_in to = Loopback(listener->port());
  const Client first(listener->port());
  const Client second(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 2; }));
  // The second was taken a moment before its host is barred.
  CHECK(Comes([&] { return !IsAnswered("127.0.0.1", to, absl::Milliseconds(100)); }));
  CHECK(IsAnswered("127.0.0.2", to, absl::Seconds(10)));
  CHECK(first.IsOpen());
  // Its host may come again, and what is open gets through all the time.
  CHECK(Comes([&] { return IsAnswered("127.0.0.1", to, absl::Milliseconds(100)); }));
  CHECK(second.IsOpen());
}

TEST_CASE("a listener that was stopped accepts no more, and leaves connections open") {
  Taker taker;
  const auto listener = Started(Limits(), &taker);
  const Client before(listener->port());
  REQUIRE(Comes([&] { return taker.taken() == 1; }));
  const int port = listener->port();
  listener->Stop();
  listener->Stop();
  CHECK(before.IsOpen());
  const absl::StatusOr<std::unique_ptr<TcpListener>> next =
      TcpListener::Listen(absl::StrCat("127.0.0.1:", port), Limits());
  CHECK(next.ok());
}

TEST_CASE("a listener stops although there is no descriptor for who waits") {
  Taker taker;
  const auto listener = Started(Limits(), &taker);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in to = Loopback(listener->port());
  {
    const NoDescriptors none;
    REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    listener->Stop();
  }
  close(fd);
  CHECK(taker.taken() == 0);
}

TEST_CASE("two cannot listen on one address") {
  const auto first = TcpListener::Listen("127.0.0.1:0", Limits());
  REQUIRE(first.ok());
  for (const char* host : {"127.0.0.1", "0.0.0.0", "localhost"}) {
    CAPTURE(host);
    const absl::Status second =
        TcpListener::Listen(absl::StrCat(host, ":", (*first)->port()), Limits()).status();
    CHECK(absl::IsAlreadyExists(second));
    CHECK_THAT(std::string(second.message()), Contains("Address already in use"));
  }
}

TEST_CASE("an address that is not this host's, and a name of nobody, are errors") {
  CHECK_THAT(std::string(TcpListener::Listen("192.0.2.1:0", Limits()).status().message()),
             Contains("Cannot assign requested address"));
  CHECK_THAT(std::string(TcpListener::Listen("nobody.invalid:0", Limits()).status().message()),
             Contains("nobody.invalid"));
}

TEST_CASE("all spellings of this host are listened to") {
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0", "localhost:0", "[::]:0"}) {
    CAPTURE(address);
    Taker taker;
    const auto listener = TcpListener::Listen(address, Limits());
    if (std::string(address) == "[::]:0" && !listener.ok()) continue;  // without IPv6
    REQUIRE(listener.ok());
    (*listener)->Start([&](int, int connection) { taker.Take(connection); });
    const Client client((*listener)->port());
    REQUIRE(Comes([&] { return taker.taken() == 1; }));
    // Also an IPv4 client of an IPv6 socket has the name that gRPC gives it.
    (*listener)->BecomeKnown(client.peer(), /*sends_data=*/true);
    CHECK((*listener)->counts().unknown == 0);
    (*listener)->Stop();
  }
}

}  // namespace
}  // namespace evenshard
