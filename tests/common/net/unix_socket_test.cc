#include "common/net/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <barrier>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/captured_log.h"
#include "tests/testing/no_descriptors.h"
#include "tests/testing/process_of_nobody.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/thread_check.h"

namespace evenshard {

namespace {

using Catch::Contains;

int BoundSocket(const std::string& path, int type) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, type, 0);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

// As of a process that was killed.
void LeaveSocketBehind(const std::string& path) { close(BoundSocket(path, SOCK_STREAM)); }

}  // namespace

TEST_CASE("only unix addresses have a path") {
  CHECK(UnixPath("unix:/run/0.sock") == std::string("/run/0.sock"));
  CHECK(UnixPath("unix:0.sock") == std::string("0.sock"));
  CHECK(UnixPath("localhost:50051") == std::nullopt);
}

TEST_CASE("a connection carries more at once than the kernel's default") {
  const ScratchFolder folder;
  const absl::StatusOr<UnixListeningSocket> listener =
      UnixListeningSocket::Listen(folder.Path("socket"));
  REQUIRE(listener.ok());
  const absl::StatusOr<int> client = ConnectUnix(folder.Path("socket"));
  REQUIRE(client.ok());
  const absl::StatusOr<int> server = listener->Accept();
  REQUIRE(server.ok());
  const int plain = socket(AF_UNIX, SOCK_STREAM, 0);
  const auto send_buffer = [](int fd) {
    int bytes = 0;
    socklen_t size = sizeof(bytes);
    REQUIRE(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) == 0);
    return bytes;
  };
  // The sizes are equal if net.core.wmem_max, the largest allowed, is the default size.
  CHECK(send_buffer(*client) >= send_buffer(plain));
  CHECK(send_buffer(*server) == send_buffer(*client));
  const std::string message(1000, 'x');
  CHECK(write(*client, message.data(), message.size()) == 1000);
  std::string received(1000, ' ');
  CHECK(read(*server, received.data(), received.size()) == 1000);
  CHECK(received == message);
  CHECK(read(*server, received.data(), 1) == -1);  // non-blocking: nothing is there
  for (const int fd : {*client, *server, plain}) close(fd);
}

TEST_CASE("a listener replaces a stale socket, not one that has a listener") {
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  LeaveSocketBehind(path);
  {
    const absl::StatusOr<UnixListeningSocket> listener = UnixListeningSocket::Listen(path);
    REQUIRE(listener.ok());
    const absl::Status taken = UnixListeningSocket::Listen(path).status();
    CHECK(absl::IsUnavailable(taken));
    CHECK_THAT(std::string(taken.message()), Contains("another process listens on"));
    REQUIRE(ConnectUnix(path).ok());
  }
  CHECK(folder.Files().empty());
}

TEST_CASE("a listener replaces nothing but a socket, and says what lies there") {
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  std::string kind;
  SECTION("regular file") {
    folder.Write("socket", "a result of many hours");
    kind = "a regular file";
  }
  SECTION("directory") {
    std::filesystem::create_directory(path);
    kind = "a directory";
  }
  SECTION("symbolic link to a socket that was left behind") {
    LeaveSocketBehind(folder.Path("other"));
    std::filesystem::create_symlink("other", path);
    kind = "a symbolic link";
  }
  SECTION("pipe") {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    kind = "a device or pipe";
  }
  const std::vector<std::string> before = folder.Files();
  const absl::Status refused = UnixListeningSocket::Listen(path).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(refused.message() ==
        path + " is " + kind + "; only a socket without a listener is replaced");
  CHECK(folder.Files() == before);
  if (kind == "a regular file") CHECK(folder.Read("socket") == "a result of many hours");
}

TEST_CASE("a socket of another type is not replaced") {
  const ScratchFolder folder;
  const int datagrams = BoundSocket(folder.Path("socket"), SOCK_DGRAM);
  CHECK_THAT(std::string(UnixListeningSocket::Listen(folder.Path("socket")).status().message()),
             Contains("connect to the socket at"));
  CHECK(folder.Files() == std::vector<std::string>{"socket"});
  close(datagrams);
}

TEST_CASE("of several listeners that replace a stale socket at once, one succeeds") {
  constexpr int kTries = 300;
  constexpr int kListeners = 4;
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  for (int i = 0; i < kTries; ++i) {
    CAPTURE(i);
    LeaveSocketBehind(path);
    std::vector<std::optional<absl::StatusOr<UnixListeningSocket>>> listeners(kListeners);
    std::barrier start(kListeners);
    std::vector<std::thread> threads;
    for (auto& listener : listeners) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        listener.emplace(UnixListeningSocket::Listen(path));
      });
    }
    for (std::thread& thread : threads) thread.join();
    int listening = 0;
    for (const auto& listener : listeners) {
      listening += listener->ok();
      if (!listener->ok()) CHECK(absl::IsUnavailable(listener->status()));
    }
    REQUIRE(listening == 1);
    const absl::StatusOr<int> connection = ConnectUnix(path);
    REQUIRE(connection.ok());
    close(*connection);
    listeners.clear();
    REQUIRE(folder.Files().empty());
  }
}

TEST_CASE("a listener that ends removes only its own socket") {
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  const absl::StatusOr<UnixListeningSocket> first = UnixListeningSocket::Listen(path);
  REQUIRE(first.ok());
  REQUIRE(unlink(path.c_str()) == 0);
  {
    const absl::StatusOr<UnixListeningSocket> second = UnixListeningSocket::Listen(path);
    REQUIRE(second.ok());
    first->Stop();
    const absl::StatusOr<int> connection = ConnectUnix(path);
    REQUIRE(connection.ok());
    close(*connection);
  }
  folder.Write("socket", "a file of somebody else");
  first->Stop();
  CHECK(folder.Read("socket") == "a file of somebody else");
}

TEST_CASE("a listener that was stopped accepts no more") {
  const ScratchFolder folder;
  const absl::StatusOr<UnixListeningSocket> listener =
      UnixListeningSocket::Listen(folder.Path("socket"));
  REQUIRE(listener.ok());
  absl::Status accepted;
  std::thread accepter([&] { accepted = listener->Accept().status(); });
  listener->Stop();
  accepter.join();
  CHECK(absl::IsCancelled(accepted));
}

TEST_CASE("a listener stops although there is no descriptor for who waits") {
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  const absl::StatusOr<UnixListeningSocket> listener = UnixListeningSocket::Listen(path);
  REQUIRE(listener.ok());
  const absl::StatusOr<int> waiting = ConnectUnix(path);
  REQUIRE(waiting.ok());
  {
    const NoDescriptors none;
    absl::Status accepted;
    std::thread accepter([&] { accepted = listener->Accept().status(); });
    listener->Stop();
    accepter.join();
    CHECK(absl::IsCancelled(accepted));
  }
  close(*waiting);
}

TEST_CASE("a listener that takes no connection is not waited for") {
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  const int listener = BoundSocket(path, SOCK_STREAM);
  REQUIRE(listen(listener, 0) == 0);
  std::vector<int> queued;
  absl::StatusOr<int> connected = ConnectUnix(path);
  for (; connected.ok() && queued.size() < 100; connected = ConnectUnix(path)) {
    queued.push_back(*connected);
  }
  CHECK(absl::IsDeadlineExceeded(connected.status()));
  CHECK_THAT(std::string(connected.status().message()),
             Contains(path + " takes no connection, its queue is full"));
  // Nobody knows who it is.
  CHECK(IsUnknownPeer(CheckUnixPeer("unix:" + path)));
  for (const int fd : queued) close(fd);
  close(listener);
}

TEST_CASE("another user is neither let in nor spoken to") {
  // What a process of another user comes to.
  const auto as_nobody = [](const std::function<int()>& act) {
    return ProcessOfNobody([&] { return std::to_string(act()); }).result();
  };
  if (!as_nobody([] { return 0; }).has_value()) return;
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  std::filesystem::permissions(folder.Path("."), std::filesystem::perms::all);
  const absl::StatusOr<UnixListeningSocket> listener = UnixListeningSocket::Listen(path);
  REQUIRE(listener.ok());
  struct stat file;
  REQUIRE(stat(path.c_str(), &file) == 0);
  CHECK((file.st_mode & 0777) == 0600);
  constexpr int kNothingRead = 200;
  const auto connect_and_read = [&] {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      return errno;
    char byte;
    return read(fd, &byte, 1) == 0 ? kNothingRead : 0;
  };
  CHECK(as_nobody(connect_and_read) == std::to_string(EACCES));
  // Also if somebody has opened the file to others.
  std::filesystem::permissions(path, std::filesystem::perms::all);
  {
    const CapturedLog log;
    std::thread accepting([&] { ThreadCheck(listener->Accept().ok()); });
    CHECK(as_nobody(connect_and_read) == std::to_string(kNothingRead));
    CHECK(ConnectUnix(path).ok());
    accepting.join();
    CHECK_THAT(log.text(), Contains("refused: the process ") && Contains(" is of user 65534"));
  }
  // A listener of nobody, whom no other user speaks to; root's is spoken to by everybody.
  const std::string other = folder.Path("other");
  std::optional<UnixListeningSocket> theirs;  // of the other process
  const ProcessOfNobody nobody([&]() -> std::string {
    if (!ConnectUnix(path).ok()) return "does not speak to root";
    absl::StatusOr<UnixListeningSocket> listens = UnixListeningSocket::Listen(other);
    if (!listens.ok()) return listens.status().ToString();
    theirs.emplace(*std::move(listens));
    return "listens";
  });
  REQUIRE(nobody.result() == "listens");
  for (const absl::Status& refused :
       {ConnectUnix(other).status(), CheckUnixPeer("unix:" + other)}) {
    CHECK(absl::IsPermissionDenied(refused));
    CHECK_THAT(std::string(refused.message()), Contains("is of user 65534, allowed: user 0"));
  }
  for (const std::string& harmless : {path, folder.Path("nobody listens")}) {
    CHECK(CheckUnixPeer("unix:" + harmless).ok());
  }
  CHECK(CheckUnixPeer("127.0.0.1:1").ok());
}

TEST_CASE("paths that cannot be listened on or connected to are named") {
  const ScratchFolder folder;
  const std::string missing = folder.Path("no/such/folder");
  CHECK_THAT(std::string(UnixListeningSocket::Listen(missing).status().message()),
             Contains(missing));
  CHECK_THAT(std::string(ConnectUnix(missing).status().message()), Contains(missing));
  const std::string too_long(200, 'x');
  CHECK_THAT(std::string(UnixListeningSocket::Listen(too_long).status().message()),
             Contains("has 200 bytes, allowed are 107"));
}

}  // namespace evenshard
