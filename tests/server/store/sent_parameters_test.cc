#include "server/store/sent_parameters.h"

#include <catch2/catch.hpp>
#include <vector>

namespace evenshard {
namespace {

using Ranks = SentParameters::Ranks;

struct Fixture {
  std::vector<float> memory[3] = {{0, 0}, {0, 0}, {0, 0}};
  SentParameters sent{{memory[0].data(), memory[1].data(), memory[2].data()}, 2};
  std::vector<float> parameters = {1, 2};
};

}  // namespace

TEST_CASE_METHOD(Fixture, "what was noted is kept by the next update, for each worker by itself") {
  sent.Note(0);
  sent.Note(2);
  CHECK(sent.NotedBut(/*pusher=*/1) == Ranks{0, 2});
  sent.Keep(sent.NotedBut(1), parameters, /*version=*/5);
  CHECK(sent.NotedBut(1).empty());
  parameters = {3, 4};
  sent.Note(1);
  sent.Note(2);
  sent.Keep(sent.NotedBut(0), parameters, /*version=*/6);
  REQUIRE(sent.Find(0, 5) != nullptr);
  CHECK(std::vector(sent.Find(0, 5), sent.Find(0, 5) + 2) == std::vector<float>{1, 2});
  CHECK(sent.Find(0, 6) == nullptr);
  for (const uint32_t rank : {1, 2}) {
    CHECK(sent.Find(rank, 5) == nullptr);
    REQUIRE(sent.Find(rank, 6) != nullptr);
    CHECK(sent.Find(rank, 6)[1] == 4);
  }
  CHECK(sent.versions() == std::vector<uint64_t>{5, 6, 6});
}

TEST_CASE_METHOD(Fixture, "nothing is kept for the worker that pushes, and its note is over") {
  sent.Note(1);
  CHECK(sent.NotedBut(1).empty());
  sent.Keep(sent.NotedBut(1), parameters, /*version=*/0);
  CHECK(sent.NotedBut(0).empty());
  CHECK(sent.Find(1, 0) == nullptr);
}

TEST_CASE_METHOD(Fixture, "a state that is taken over ends what was noted") {
  sent.Note(0);
  sent.SetVersions({SentParameters::kNoVersion, 7, SentParameters::kNoVersion});
  CHECK(sent.NotedBut(1).empty());
  CHECK(sent.Find(1, 7) == memory[1].data());
  CHECK(sent.Find(0, 0) == nullptr);
}

TEST_CASE("without memory nothing is kept, and strangers are not noted") {
  SentParameters none({}, 2);
  CHECK_FALSE(none.are_kept());
  none.Note(3);
  CHECK(none.NotedBut(0).empty());
  none.Keep({3}, {}, 1);
  CHECK(none.Find(0, 1) == nullptr);
}

}  // namespace evenshard
