#ifndef EVENSHARD_TESTS_TESTING_HTTP2_PEER_H_
#define EVENSHARD_TESTS_TESTING_HTTP2_PEER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace evenshard {

// A client that speaks just enough HTTP/2 (RFC 9113) to open one Exchange stream and then behaves
// as no gRPC library would: it reads nothing, or single bytes, or stops in the middle of a message.
class Http2Peer {
 public:
  // Connects to "127.0.0.1:PORT". With `endless_window`, HTTP/2's flow control does not stop the
  // shard from sending; only the socket does. Otherwise the window is the default, 65,535 bytes.
  Http2Peer(const std::string& address, int worker, uint64_t incarnation, bool endless_window) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(socket_ >= 0);
    const int small = 4096;  // so that the shard must keep what is not read
    REQUIRE(setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
    uint32_t port = 0;
    REQUIRE(absl::SimpleAtoi(absl::StripPrefix(address, "127.0.0.1:"), &port));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);

    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    constexpr uint32_t kLargestWindow = 0x7fffffff;
    constexpr uint32_t kDefaultWindow = 65535;
    if (endless_window) {
      Send(Frame(kSettings, 0, 0, std::string("\0\x04", 2) + BigEndian(kLargestWindow)));
      Send(Frame(kWindowUpdate, 0, 0, BigEndian(kLargestWindow - kDefaultWindow)));
    } else {
      Send(Frame(kSettings, 0, 0, ""));
    }
    const std::string headers =
        Header(":method", "POST") + Header(":scheme", "http") +
        Header(":path", "/evenshard.v1.ParameterServer/Exchange") +
        Header(":authority", "localhost") + Header("content-type", "application/grpc") +
        Header("te", "trailers") + Header("ps-worker", absl::StrCat(worker)) +
        Header("ps-incarnation", absl::StrCat(incarnation));
    Send(Frame(kHeaders, kEndHeaders, kStream, headers));
  }
  ~Http2Peer() { close(socket_); }
  Http2Peer(const Http2Peer&) = delete;
  Http2Peer& operator=(const Http2Peer&) = delete;

  // Sends a gRPC message, or at most its first `part` bytes. All messages together must fit into
  // the shard's initial window of 65,535 bytes, since this peer ignores flow control.
  void SendMessage(const std::string& message, size_t part = SIZE_MAX) {
    Send(Frame(kData, 0, kStream,
               (std::string(1, '\0') + BigEndian(message.size()) + message).substr(0, part)));
  }

  void HalfClose() { Send(Frame(kData, kEndStream, kStream, "")); }

  void ReadByte() {
    char byte;
    REQUIRE(recv(socket_, &byte, 1, 0) == 1);
  }

 private:
  enum Type : uint8_t { kData = 0, kHeaders = 1, kSettings = 4, kWindowUpdate = 8 };
  enum Flag : uint8_t { kEndStream = 1, kEndHeaders = 4 };
  static constexpr uint32_t kStream = 1;

  static std::string BigEndian(uint32_t number) {
    number = htonl(number);
    return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  static std::string Frame(Type type, uint8_t flags, uint32_t stream, const std::string& payload) {
    return BigEndian(payload.size()).substr(1) + static_cast<char>(type) +
           static_cast<char>(flags) + BigEndian(stream) + payload;
  }

  // Encodes a literal field without indexing (RFC 7541, 6.2.2). REQUIRES: both strings are shorter
  // than 127 bytes.
  static std::string Header(const std::string& name, const std::string& value) {
    return std::string(1, '\0') + static_cast<char>(name.size()) + name +
           static_cast<char>(value.size()) + value;
  }

  void Send(const std::string& bytes) {
    REQUIRE(send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }

  int socket_ = -1;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_HTTP2_PEER_H_
