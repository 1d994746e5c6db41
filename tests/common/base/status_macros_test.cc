#include "common/base/status_macros.h"

#include <catch2/catch.hpp>
#include <memory>

namespace evenshard {
namespace {

absl::Status Check(int value) {
  return value < 0 ? absl::OutOfRangeError("negative") : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  RETURN_IF_ERROR(Check(value));
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int first, int second) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> left, Box(first));
  std::unique_ptr<int> right;
  ASSIGN_OR_RETURN(right, Box(second));
  return *left + *right;
}

absl::Status CheckUnless(bool skip, int value) {
  if (!skip)
    RETURN_IF_ERROR(Check(value));
  else
    return absl::CancelledError("skipped");
  return absl::OkStatus();
}

}  // namespace

TEST_CASE("an error is returned as it is, and a value goes on") {
  CHECK(Sum(1, 2).value() == 3);
  CHECK(Sum(-1, 2).status() == absl::OutOfRangeError("negative"));
  CHECK(Sum(1, -2).status() == absl::OutOfRangeError("negative"));
}

TEST_CASE("an else belongs to the if that it stands with") {
  CHECK(CheckUnless(false, 1).ok());
  CHECK(absl::IsOutOfRange(CheckUnless(false, -1)));
  CHECK(absl::IsCancelled(CheckUnless(true, -1)));
}

}  // namespace evenshard
