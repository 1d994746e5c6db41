#include "common/control/view/crew.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

CrewHistory Four() {
  CrewHistory crews;
  Crew* crew = crews.Add();
  for (const uint32_t rank : {0, 1, 2, 3}) crew->add_rank(rank);
  return crews;
}

std::string Text(const CrewHistory& history) {
  std::string text;
  for (const Crew& crew : history) {
    absl::StrAppend(&text, text.empty() ? "" : " ", crew.from_iteration(), ":",
                    FormatRanks(absl::MakeConstSpan(crew.rank().data(), crew.rank_size())));
  }
  return text;
}

}  // namespace

TEST_CASE("a crew holds from its iteration until the next entry") {
  CrewHistory history = Four();
  RemoveFromCrew(1, 10, &history);
  AddToCrew(1, 20, &history);
  CHECK(Text(history) == "0:0-3 10:0, 2, 3 20:0-3");
  CHECK(CrewAt(history, 0).size() == 4);
  CHECK(CrewAt(history, 9).size() == 4);
  CHECK(CrewAt(history, 10).size() == 3);
  CHECK(CrewAt(history, 19).size() == 3);
  CHECK(CrewAt(history, 20).size() == 4);
  CHECK(LastCrew(history).size() == 4);
  CHECK(IsInLastCrew(history, 1));
  CHECK_FALSE(IsInLastCrew(history, 4));
  CHECK(InCrewSince(history, 1) == 20);
  CHECK(InCrewSince(history, 0) == 0);
  CHECK(IsInCrew(history, 1, 9));
  CHECK_FALSE(IsInCrew(history, 1, 10));
}

TEST_CASE("a rank is waited for if it is in the crew of the iteration and of the next one") {
  CrewHistory history = Four();
  RemoveFromCrew(1, 10, &history);
  AddToCrew(1, 20, &history);
  CHECK(IsWaitedFor(history, 1, 8));
  CHECK_FALSE(IsWaitedFor(history, 1, 9));
  CHECK_FALSE(IsWaitedFor(history, 1, 19));
  CHECK(IsWaitedFor(history, 1, 20));
  CHECK(IsWaitedFor(history, 0, 9));
  CHECK_FALSE(IsWaitedFor(history, 7, 9));
  CHECK(IsWaitedFor(CrewHistory(), 7, 9));
}

TEST_CASE("a change reaches all later crews, and entries that change nothing go") {
  CrewHistory history = Four();
  RemoveFromCrew(3, 0, &history);
  CHECK(Text(history) == "0:0-2");
  AddToCrew(3, 12, &history);
  RemoveFromCrew(1, 6, &history);
  CHECK(Text(history) == "0:0-2 6:0, 2 12:0, 2, 3");
  RemoveFromCrew(3, 7, &history);
  CHECK(Text(history) == "0:0-2 6:0, 2");
  AddToCrew(1, 6, &history);
  CHECK(Text(history) == "0:0-2");
  AddToCrew(1, 6, &history);
  CHECK(Text(history) == "0:0-2");
}

TEST_CASE("a history is cut at an iteration") {
  CrewHistory history = Four();
  RemoveFromCrew(1, 10, &history);
  AddToCrew(1, 20, &history);
  CutCrews(20, &history);
  CHECK(Text(history) == "0:0-3 10:0, 2, 3 20:0-3");
  CutCrews(19, &history);
  CHECK(Text(history) == "0:0-3 10:0, 2, 3");
  CutCrews(0, &history);
  CHECK(Text(history) == "0:0-3");
}

TEST_CASE("ranks are shown as ranges") {
  CHECK(FormatRanks({}) == "");
  CHECK(FormatRanks({4}) == "4");
  CHECK(FormatRanks({0, 1}) == "0, 1");
  CHECK(FormatRanks({0, 1, 2, 5, 7, 8, 9}) == "0-2, 5, 7-9");
}

}  // namespace evenshard
