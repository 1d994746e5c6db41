#include "common/net/status_conversion.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/cord.h"
#include "common/base/error_kind.h"
#include "proto/error.pb.h"

namespace evenshard {

TEST_CASE("every status code and its message survive the way through gRPC") {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "the message");
    CHECK(FromGrpc(ToGrpc(status)) == status);
  }
}

TEST_CASE("a method that a server does not have, of which gRPC says nothing, gets a message") {
  const absl::Status status = FromGrpc({grpc::StatusCode::UNIMPLEMENTED, ""});
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("another program"));
  CHECK(FromGrpc({grpc::StatusCode::UNIMPLEMENTED, "a ring"}).message() == "a ring");
}

TEST_CASE("an error's kind survives the way through gRPC, whatever its message") {
  for (const auto kind : {ErrorDetail::OTHER, ErrorDetail::RUN_FAILED, ErrorDetail::WENT_BACK}) {
    for (const char* message : {"", "the run has gone back to a checkpoint", "anything else"}) {
      const absl::Status status = WithKind(kind, absl::AbortedError(message));
      CHECK(FromGrpc(ToGrpc(status)) == status);
    }
  }
}

TEST_CASE("the name of a state that differs survives the way through gRPC, escaped and cut") {
  for (const auto kind : {ErrorDetail::OTHER, ErrorDetail::RUN_FAILED}) {
    const absl::Status status = WithDifferingState(
        "the sampler", WithKind(kind, absl::FailedPreconditionError("it differs")));
    CHECK(FromGrpc(ToGrpc(status)) == status);
  }
  ErrorDetail forged;
  forged.set_differing_state("\x1b[2J" + std::string(100'000, 'x'));
  StatusDetails details;
  details.add_detail()->set_type_url(kErrorDetailUrl);
  details.mutable_detail(0)->set_value(forged.SerializeAsString());
  const std::string name = DifferingStateOf(
      FromGrpc({grpc::StatusCode::FAILED_PRECONDITION, "gone", details.SerializeAsString()}));
  CHECK(name.substr(0, 8) == "\\x1b[2Jx");
  CHECK(name.size() == 256);
}

TEST_CASE("details are those of google.rpc.Status, and other payloads stay here") {
  absl::Status status = WithKind(ErrorDetail::RUN_FAILED, absl::UnavailableError("gone"));
  status.SetPayload("type.googleapis.com/elsewhere", absl::Cord("secret"));
  StatusDetails details;
  REQUIRE(details.ParseFromString(ToGrpc(status).error_details()));
  CHECK(details.code() == 14);
  CHECK(details.message() == "gone");
  REQUIRE(details.detail_size() == 1);
  CHECK(details.detail(0).type_url() == "type.googleapis.com/evenshard.v1.ErrorDetail");
  CHECK(details.detail(0).value() == "\x08\x01");  // kind: 1
  CHECK(ToGrpc(absl::UnavailableError("gone")).error_details().empty());
}

TEST_CASE("a peer's details that are of no use leave its error as it is") {
  StatusDetails strange;
  strange.add_detail()->set_type_url("type.googleapis.com/google.rpc.DebugInfo");
  strange.add_detail()->set_type_url(kErrorDetailUrl);
  strange.mutable_detail(1)->set_value("\x08\x63");  // kind: 99
  for (const std::string& bytes : {std::string("\xff\xff"), strange.SerializeAsString()}) {
    CHECK(KindOf(FromGrpc({grpc::StatusCode::ABORTED, "gone", bytes})) == ErrorDetail::OTHER);
    CHECK(FromGrpc({grpc::StatusCode::ABORTED, "gone", bytes}).message() == "gone");
  }
}

TEST_CASE("message and details together have room in gRPC's metadata") {
  std::string message;
  for (int i = 0; i < 10'000; ++i) message += "\u00e9";
  const grpc::Status status = ToGrpc(
      WithDifferingState(message, WithKind(ErrorDetail::RUN_FAILED, absl::UnknownError(message))));
  CHECK(3 * status.error_message().size() + status.error_details().size() * 4 / 3 < 8000);
  CHECK(KindOf(FromGrpc(status)) == ErrorDetail::RUN_FAILED);
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
