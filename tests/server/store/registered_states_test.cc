#include "server/store/registered_states.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/base/error_kind.h"

namespace evenshard {

using Catch::Contains;

TEST_CASE("what one worker has registered is there for another, at that exchange") {
  RegisteredStates states;
  CHECK(!states.is_used());
  CHECK(*states.Take(1, 7, {0, 1}) == std::nullopt);
  REQUIRE(states.Keep(0, 7, {{"scheduler", "a"}}).ok());
  CHECK(states.is_used());
  CHECK(**states.Take(1, 7, {0, 1}) == StatesByName{{"scheduler", "a"}});
  CHECK(*states.Take(1, 6, {0, 1}) == std::nullopt);
  // The same again, as from a worker that repeats it.
  CHECK(states.Keep(1, 7, {{"scheduler", "a"}}).ok());
  for (const uint64_t exchange : {8, 9}) REQUIRE(states.Keep(0, exchange, {{"s", "b"}}).ok());
  CHECK(!states.At(7).has_value());
  CHECK(states.At(8) == StatesByName{{"s", "b"}});
  // One that comes late does not displace newer ones.
  CHECK(states.Keep(1, 5, {{"s", "c"}}).ok());
  CHECK(states.At(8).has_value());
  CHECK(states.At(9).has_value());
  CHECK(!states.At(5).has_value());
}

TEST_CASE("what is not the same in all workers is named, with both") {
  RegisteredStates states;
  REQUIRE(states.Keep(2, 7, {{"a", "1"}, {"b", "2"}}).ok());
  const auto [other, name, message] = GENERATE(table<StatesByName, std::string, std::string>({
      {{{"a", "1"}, {"b", "3"}}, "b", "\"b\" is not the same in worker 0 and in worker 2"},
      {{{"a", "1"}}, "b", "\"b\" is registered by worker 2 and not by worker 0"},
      {{{"a", "1"}, {"b", "2"}, {"c", ""}},
       "c",
       "\"c\" is registered by worker 0 and not by worker 2"},
  }));
  const absl::Status status = states.Keep(0, 7, other);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(DifferingStateOf(status) == name);
  CHECK_THAT(std::string(status.message()), Contains(message + " before exchange 7; allowed: "));
  RegisteredStates restored;
  REQUIRE(restored.Keep(std::nullopt, 7, {{"a", "1"}, {"b", "2"}}).ok());
  CHECK_THAT(std::string(restored.Keep(0, 7, other).message()), Contains("the checkpoint"));
}

TEST_CASE("what is too large is refused") {
  RegisteredStates states;
  const absl::Status status =
      states.Keep(0, 7, {{"a", std::string(RegisteredStates::kMaxBytes, 'x')}});
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "the registered state has 262145 bytes, allowed: at most 262144");
  CHECK(!states.is_used());
}

TEST_CASE("a checkpoint without anything registered says so") {
  RegisteredStates states;
  REQUIRE(states.Keep(std::nullopt, 7, {}).ok());
  CHECK(!states.is_used());
  CHECK(**states.Take(0, 7, {0}) == StatesByName());
  CHECK(!states.is_lost());
}

TEST_CASE("what all workers ask for is lost") {
  RegisteredStates states;
  CHECK(*states.Take(1, 7, {0, 1, 2}) == std::nullopt);
  CHECK(*states.Take(1, 7, {0, 1, 2}) == std::nullopt);
  CHECK(*states.Take(0, 7, {0, 1, 2}) == std::nullopt);
  SECTION("unless one of them does not") {
    REQUIRE(states.Keep(2, 7, {{"a", "1"}}).ok());
    CHECK((*states.Take(0, 7, {0, 1, 2})).has_value());
    CHECK(!states.is_lost());
  }
  SECTION("or not for the same exchange") {
    CHECK(*states.Take(2, 8, {0, 1, 2}) == std::nullopt);
    CHECK(!states.is_lost());
  }
  SECTION("for good") {
    CHECK(absl::IsUnavailable(states.Take(2, 7, {0, 1, 2}).status()));
    CHECK(states.is_lost());
    CHECK(absl::IsUnavailable(states.Take(0, 7, {0, 1, 2}).status()));
  }
}

}  // namespace evenshard
