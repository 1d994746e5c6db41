#include "common/base/error_kind.h"

#include <catch2/catch.hpp>

namespace evenshard {

TEST_CASE("an error has the kind that it was given, whatever its code and its message") {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "some sentence");
    CHECK(KindOf(status) == ErrorDetail::OTHER);
    const absl::Status marked = WithKind(ErrorDetail::WENT_BACK, status);
    CHECK(KindOf(marked) == ErrorDetail::WENT_BACK);
    CHECK(marked.code() == status.code());
    CHECK(marked.message() == status.message());
    CHECK(KindOf(WithKind(ErrorDetail::RUN_FAILED, marked)) == ErrorDetail::RUN_FAILED);
    CHECK(WithKind(ErrorDetail::OTHER, marked) == status);
  }
}

TEST_CASE("no error has no kind") {
  CHECK(WithKind(ErrorDetail::RUN_FAILED, absl::OkStatus()) == absl::OkStatus());
  CHECK(KindOf(absl::OkStatus()) == ErrorDetail::OTHER);
}

TEST_CASE("the name of a state that differs stays with the error, whatever its kind") {
  const absl::Status plain = absl::FailedPreconditionError("differs");
  CHECK(DifferingStateOf(plain).empty());
  const absl::Status named = WithDifferingState("the sampler", plain);
  CHECK(KindOf(named) == ErrorDetail::OTHER);
  for (const absl::Status& status :
       {named, WithKind(ErrorDetail::RUN_FAILED, named), Reworded(named, "shard 0: differs")}) {
    CHECK(DifferingStateOf(status) == "the sampler");
  }
  CHECK(WithDifferingState("", named) == plain);
  CHECK(DifferingStateOf(WithDifferingState("a\n" + std::string(300, 'x'), plain)) ==
        "a\\n" + std::string(250, 'x') + "...");
  CHECK(WithDifferingState("x", absl::OkStatus()) == absl::OkStatus());
}

TEST_CASE("another message leaves code and kind") {
  const absl::Status plain = absl::UnavailableError("gone");
  CHECK(Reworded(plain, "shard 1: gone") == absl::UnavailableError("shard 1: gone"));
  CHECK(Reworded(WithKind(ErrorDetail::RUN_FAILED, plain), "shard 1: gone") ==
        WithKind(ErrorDetail::RUN_FAILED, absl::UnavailableError("shard 1: gone")));
}

TEST_CASE("a kind that this program does not know is no kind") {
  absl::Status status = absl::AbortedError("later");
  for (const char* payload : {"\x08\x63", "\xff"}) {  // kind 99, and no message at all
    status.SetPayload(kErrorDetailUrl, absl::Cord(payload));
    CHECK(KindOf(status) == ErrorDetail::OTHER);
  }
}

}  // namespace evenshard
