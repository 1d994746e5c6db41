#include "common/net/status_conversion.h"

#include <catch2/catch.hpp>
#include <string>

namespace evenshard {

TEST_CASE("every status code and its message survive the way through gRPC") {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "the message");
    CHECK(FromGrpc(ToGrpc(status)) == status);
  }
}

TEST_CASE("a message too long for gRPC's metadata is cut") {
  const std::string message = ToGrpc(absl::UnknownError(std::string(100'000, 'x'))).error_message();
  CHECK(message.size() < 2500);
  CHECK(message.substr(message.size() - 4) == "x...");
}

TEST_CASE("a peer's message cannot end a line or steer a terminal, nor be long") {
  const grpc::Status forged(grpc::StatusCode::ABORTED, "gone\n12:00:00 error \x1b[2J");
  CHECK(FromGrpc(forged).message() == "gone\\n12:00:00 error \\x1b[2J");
  const grpc::Status endless(grpc::StatusCode::ABORTED, std::string(1'000'000, 'x'));
  CHECK(FromGrpc(endless).message().size() < 2500);
  CHECK(ToGrpc(absl::AbortedError("quotes\r\n")).error_message() == "quotes\\r\\n");
}

TEST_CASE("codes keep their meaning") {
  CHECK(ToGrpc(absl::AlreadyExistsError("")).error_code() == grpc::StatusCode::ALREADY_EXISTS);
  CHECK(ToGrpc(absl::UnavailableError("")).error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(absl::IsDeadlineExceeded(FromGrpc({grpc::StatusCode::DEADLINE_EXCEEDED, ""})));
}

}  // namespace evenshard
