#include "common/unix_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "tests/testing/scratch_folder.h"

namespace ps {

using Catch::Contains;

TEST_CASE("Only unix addresses have a path") {
  CHECK(UnixPath("unix:/run/0.sock") == std::string("/run/0.sock"));
  CHECK(UnixPath("unix:0.sock") == std::string("0.sock"));
  CHECK(UnixPath("localhost:50051") == absl::nullopt);
}

TEST_CASE("A connection carries more at once than the kernel's default") {
  const ScratchFolder folder;
  const absl::StatusOr<int> listener = ListenUnix(folder.Path("socket"));
  REQUIRE(listener.ok());
  const absl::StatusOr<int> client = ConnectUnix(folder.Path("socket"));
  REQUIRE(client.ok());
  const absl::StatusOr<int> server = AcceptUnix(*listener);
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
  CHECK(read(*server, received.data(), 1) == -1);  // empty, and the socket does not block
  for (const int fd : {*listener, *client, *server, plain}) close(fd);
}

TEST_CASE("A listener takes the place of a file that was left behind, not of a living one") {
  const ScratchFolder folder;
  const absl::StatusOr<int> first = ListenUnix(folder.Path("socket"));
  REQUIRE(first.ok());
  const absl::Status taken = ListenUnix(folder.Path("socket")).status();
  CHECK(absl::IsUnavailable(taken));
  CHECK_THAT(std::string(taken.message()), Contains("another process listens on"));
  close(*first);
  const absl::StatusOr<int> second = ListenUnix(folder.Path("socket"));
  REQUIRE(second.ok());
  close(*second);
}

TEST_CASE("A listener that was shut down accepts no more") {
  const ScratchFolder folder;
  const absl::StatusOr<int> listener = ListenUnix(folder.Path("socket"));
  REQUIRE(listener.ok());
  absl::Status accepted;
  std::thread accepter([&] { accepted = AcceptUnix(*listener).status(); });
  shutdown(*listener, SHUT_RDWR);
  accepter.join();
  CHECK(absl::IsCancelled(accepted));
  close(*listener);
}

TEST_CASE("Paths that cannot be listened on or connected to are named") {
  const ScratchFolder folder;
  const std::string missing = folder.Path("no/such/folder");
  CHECK_THAT(std::string(ListenUnix(missing).status().message()), Contains(missing));
  CHECK_THAT(std::string(ConnectUnix(missing).status().message()), Contains(missing));
  const std::string too_long(200, 'x');
  CHECK_THAT(std::string(ListenUnix(too_long).status().message()),
             Contains("has 200 bytes, allowed are 107"));
}

}  // namespace ps
