// How often a connection may ping. gRPC's own clients do so once a second at the most, so that this
// one speaks HTTP/2 (RFC 9113) by itself.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/channel_options.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"

namespace evenshard {
namespace {

// Types of frames, and flags of theirs.
constexpr char kHeaders = 1;
constexpr char kSettings = 4;
constexpr char kPing = 6;
constexpr char kGoAway = 7;
constexpr char kAck = 1;
constexpr char kEndHeaders = 4;
constexpr int kPings = 50;

std::string Frame(char type, char flags, char stream, absl::string_view payload) {
  std::string frame(9, '\0');
  frame[2] = static_cast<char>(payload.size());
  frame[3] = type;
  frame[4] = flags;
  frame[8] = stream;
  return absl::StrCat(frame, payload);
}

// A field of a header (RFC 7541) whose name has a number of one or two bytes in the static table.
std::string Field(absl::string_view name, absl::string_view value) {
  return absl::StrCat(name, std::string(1, static_cast<char>(value.size())), value);
}

// The beginning of a connection with a call that has not sent its request yet.
std::string BeginCall() {
  const std::string header =
      absl::StrCat("\x83\x86",  // :method POST, :scheme http
                   Field("\x04", "/evenshard.v1.Admin/GetStats"), Field("\x01", "localhost"),
                   Field("\x0f\x10", "application/grpc"),
                   Field(absl::StrCat(std::string(1, '\0'), "\x02te"), "trailers"));
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Frame(kSettings, 0, 0, ""),
                      Frame(kHeaders, kEndHeaders, 1, header));
}

std::string Pings() {
  std::string pings;
  for (int i = 0; i < kPings; ++i) absl::StrAppend(&pings, Frame(kPing, 0, 0, "12345678"));
  return pings;
}

struct Answers {
  int pings = 0;
  std::string reason;  // why the server ends the connection, if it does
};

// Takes the frames that are complete, and leaves the rest.
void Take(std::string* received, Answers* answers) {
  constexpr size_t kHead = 9;
  constexpr size_t kCode = 8;  // of a GOAWAY, with the last stream's number
  while (received->size() >= kHead) {
    const size_t length = static_cast<unsigned char>((*received)[1]) << 8 |
                          static_cast<unsigned char>((*received)[2]);
    if (received->size() < kHead + length) return;
    if ((*received)[3] == kPing && (*received)[4] == kAck) ++answers->pings;
    if ((*received)[3] == kGoAway && length > kCode) {
      answers->reason = received->substr(kHead + kCode, length - kCode);
    }
    received->erase(0, kHead + length);
  }
}

// Pings, and does so once more when all is answered. Ends when the connection does.
Answers Ping(int port) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  REQUIRE(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  timeval patience = {};
  patience.tv_sec = 60;
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  Answers answers;
  std::string received;
  std::string sent = BeginCall() + Pings();
  for (const int expected : {kPings, 2 * kPings}) {
    send(connection, sent.data(), sent.size(), MSG_NOSIGNAL);
    char part[4096];
    ssize_t size = 1;
    while (answers.pings < expected && size > 0) {
      size = recv(connection, part, sizeof(part), 0);
      received.append(part, std::max<ssize_t>(size, 0));
      Take(&received, &answers);
    }
    sent = Pings();
  }
  close(connection);
  return answers;
}

Answers PingServerWith(double ping_seconds) {
  ClusterConfig config;
  config.mutable_limits()->mutable_strangers()->set_ping_seconds(ping_seconds);
  Admin::Service service;
  grpc::ServerBuilder builder;
  SetServerOptions(config, /*chunks=*/1, &builder);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  return Ping(port);
}

}  // namespace

TEST_CASE("a connection that pings more often than ping_seconds is closed") {
  const Answers answers = PingServerWith(1);
  CHECK(answers.pings <= kPings);
  CHECK(answers.reason == "too_many_pings");
}

TEST_CASE("a connection may ping as often as ping_seconds says") {
  const Answers answers = PingServerWith(1e-6);
  CHECK(answers.pings == 2 * kPings);
  CHECK(answers.reason.empty());
}

}  // namespace evenshard
