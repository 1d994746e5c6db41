#include "common/status_conversion.h"

#include <catch2/catch.hpp>

namespace ps {

TEST_CASE("every status code and its message survive the way through gRPC") {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "the message");
    CHECK(FromGrpc(ToGrpc(status)) == status);
  }
}

TEST_CASE("codes keep their meaning") {
  CHECK(ToGrpc(absl::AlreadyExistsError("")).error_code() == grpc::StatusCode::ALREADY_EXISTS);
  CHECK(ToGrpc(absl::UnavailableError("")).error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(absl::IsDeadlineExceeded(FromGrpc({grpc::StatusCode::DEADLINE_EXCEEDED, ""})));
}

}  // namespace ps
