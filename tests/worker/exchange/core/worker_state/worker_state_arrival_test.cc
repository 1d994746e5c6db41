#include "worker/exchange/core/worker_state/worker_state_arrival.h"

#include <catch2/catch.hpp>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

WorkerStatePiece Sizes(uint64_t total, uint64_t piece, uint64_t text) {
  WorkerStatePiece sizes;
  sizes.set_total_bytes(total);
  sizes.set_piece_bytes(piece);
  sizes.set_text_bytes(text);
  return sizes;
}

WorkerStatePiece Text(const std::string& text) {
  WorkerStatePiece piece;
  piece.set_text(text);
  return piece;
}

WorkerStatePiece Data(const std::string& data) {
  WorkerStatePiece piece;
  piece.set_data(data);
  return piece;
}

// A state of 10 bytes in two parts, in pieces of 4, by way of two slots.
struct Fixture {
  absl::Status Take(int slot, const WorkerStatePiece& piece) {
    return (slot == 0 ? first : second).Take(piece, stop.get_token());
  }
  void TakeSizes() {
    REQUIRE(Take(0, Sizes(10, 4, 3)).ok());
    REQUIRE(Take(1, Sizes(10, 4, 3)).ok());
  }

  std::vector<char> one = std::vector<char>(3, '.');
  std::vector<char> other = std::vector<char>(7, '.');
  std::string told;
  const WorkerState::Place place = [this](const std::string& text) {
    told = text;
    return WorkerState::Memory{absl::MakeSpan(one), absl::MakeSpan(other)};
  };
  WorkerStateArrival arrival{2, place};
  WorkerStateArrival::Slot first{&arrival, 0};
  WorkerStateArrival::Slot second{&arrival, 1};
  std::stop_source stop;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "the pieces of all slots come to their places") {
  TakeSizes();
  REQUIRE(Take(0, Text("ab")).ok());
  REQUIRE(Take(0, Text("c")).ok());
  CHECK(told == "abc");
  REQUIRE(Take(1, Data("4567")).ok());
  REQUIRE(Take(0, Data("0123")).ok());
  CHECK(absl::IsUnavailable(first.CheckEnd()));
  REQUIRE(Take(0, Data("89")).ok());
  CHECK(first.CheckEnd().ok());
  CHECK(second.CheckEnd().ok());
  CHECK(std::string(one.begin(), one.end()) == "012");
  CHECK(std::string(other.begin(), other.end()) == "3456789");
  CHECK(arrival.moved() == 13);
}

TEST_CASE("a state of impossible sizes is refused before any of it is kept") {
  const auto [total, piece, text] =
      GENERATE(table<uint64_t, uint64_t, uint64_t>({{kMost, 4, 3},
                                                    {10, 0, 3},
                                                    {10, kMostStatePieceBytes + 1, 3},
                                                    {10, kMost / 2, 3},
                                                    {10, 4, kMost},
                                                    {10, 4, kMostStateTextBytes + 1}}));
  INFO(total << " bytes in pieces of " << piece << ", and " << text << " of text");
  Fixture fixture;
  const absl::Status taken = fixture.Take(0, Sizes(total, piece, text));
  CHECK(absl::IsDataLoss(taken));
  CHECK_THAT(std::string(taken.message()), Contains("allowed: pieces of up to 1048576"));
}

TEST_CASE_METHOD(Fixture, "slots that pass on different states are noticed") {
  REQUIRE(Take(0, Sizes(10, 4, 3)).ok());
  const absl::Status taken = Take(1, Sizes(10, 5, 3));
  CHECK(absl::IsDataLoss(taken));
  CHECK_THAT(std::string(taken.message()), Contains("states of different sizes"));
}

TEST_CASE_METHOD(Fixture, "nothing is written beyond a state's end or of another size") {
  TakeSizes();
  SECTION("a text that is longer than it was said to be") {
    CHECK(absl::IsDataLoss(Take(0, Text("abcd"))));
    CHECK(told.empty());
  }
  SECTION("data") {
    REQUIRE(Take(0, Text("abc")).ok());
    CHECK(absl::IsDataLoss(Take(1, Data("45678"))));
    REQUIRE(Take(0, Data("0123")).ok());
    CHECK(absl::IsDataLoss(Take(0, Data("89ab"))));
    REQUIRE(Take(0, Data("89")).ok());
    CHECK(absl::IsDataLoss(Take(0, Data("c"))));
    CHECK(std::string(other.begin(), other.end()) == "3....89");
  }
}

TEST_CASE("a state that does not fit its place is refused") {
  Fixture fixture;
  REQUIRE(fixture.Take(0, Sizes(11, 4, 3)).ok());
  const absl::Status taken = fixture.Take(0, Text("abc"));
  CHECK(absl::IsFailedPrecondition(taken));
  CHECK(taken.message() == "a worker's state has 11 bytes, and there is room for 10");
}

TEST_CASE_METHOD(Fixture, "a slot waits for the place until it is told to stop") {
  TakeSizes();
  stop.request_stop();
  CHECK(absl::IsCancelled(Take(1, Data("4567"))));
}

}  // namespace evenshard
