#include "common/control/view/worker_set.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

WorkerSetHistory Four() {
  WorkerSetHistory worker_sets;
  WorkerSet* worker_set = worker_sets.Add();
  for (const uint32_t rank : {0, 1, 2, 3}) worker_set->add_rank(rank);
  return worker_sets;
}

std::string Text(const WorkerSetHistory& history) {
  std::string text;
  for (const WorkerSet& worker_set : history) {
    absl::StrAppend(
        &text, text.empty() ? "" : " ", worker_set.from_iteration(), ":",
        FormatRanks(absl::MakeConstSpan(worker_set.rank().data(), worker_set.rank_size())));
  }
  return text;
}

}  // namespace

TEST_CASE("a worker set holds from its iteration until the next entry") {
  WorkerSetHistory history = Four();
  RemoveFromWorkerSet(1, 10, &history);
  AddToWorkerSet(1, 20, &history);
  CHECK(Text(history) == "0:0-3 10:0, 2, 3 20:0-3");
  CHECK(WorkerSetAt(history, 0).size() == 4);
  CHECK(WorkerSetAt(history, 9).size() == 4);
  CHECK(WorkerSetAt(history, 10).size() == 3);
  CHECK(WorkerSetAt(history, 19).size() == 3);
  CHECK(WorkerSetAt(history, 20).size() == 4);
  CHECK(LastWorkerSet(history).size() == 4);
  CHECK(IsInLastWorkerSet(history, 1));
  CHECK_FALSE(IsInLastWorkerSet(history, 4));
  CHECK(InWorkerSetSince(history, 1) == 20);
  CHECK(InWorkerSetSince(history, 0) == 0);
  CHECK(IsInWorkerSet(history, 1, 9));
  CHECK_FALSE(IsInWorkerSet(history, 1, 10));
}

TEST_CASE("a rank is waited for if it is in the worker set of the iteration and of the next one") {
  WorkerSetHistory history = Four();
  RemoveFromWorkerSet(1, 10, &history);
  AddToWorkerSet(1, 20, &history);
  CHECK(IsWaitedFor(history, 1, 8));
  CHECK_FALSE(IsWaitedFor(history, 1, 9));
  CHECK_FALSE(IsWaitedFor(history, 1, 19));
  CHECK(IsWaitedFor(history, 1, 20));
  CHECK(IsWaitedFor(history, 0, 9));
  CHECK_FALSE(IsWaitedFor(history, 7, 9));
  CHECK(IsWaitedFor(WorkerSetHistory(), 7, 9));
}

TEST_CASE("a change reaches all later worker sets, and entries that change nothing go") {
  WorkerSetHistory history = Four();
  RemoveFromWorkerSet(3, 0, &history);
  CHECK(Text(history) == "0:0-2");
  AddToWorkerSet(3, 12, &history);
  RemoveFromWorkerSet(1, 6, &history);
  CHECK(Text(history) == "0:0-2 6:0, 2 12:0, 2, 3");
  RemoveFromWorkerSet(3, 7, &history);
  CHECK(Text(history) == "0:0-2 6:0, 2");
  AddToWorkerSet(1, 6, &history);
  CHECK(Text(history) == "0:0-2");
  AddToWorkerSet(1, 6, &history);
  CHECK(Text(history) == "0:0-2");
}

TEST_CASE("a history is cut at an iteration") {
  WorkerSetHistory history = Four();
  RemoveFromWorkerSet(1, 10, &history);
  AddToWorkerSet(1, 20, &history);
  CutWorkerSets(20, &history);
  CHECK(Text(history) == "0:0-3 10:0, 2, 3 20:0-3");
  CutWorkerSets(19, &history);
  CHECK(Text(history) == "0:0-3 10:0, 2, 3");
  CutWorkerSets(0, &history);
  CHECK(Text(history) == "0:0-3");
}

TEST_CASE("ranks are shown as ranges") {
  CHECK(FormatRanks({}) == "");
  CHECK(FormatRanks({4}) == "4");
  CHECK(FormatRanks({0, 1}) == "0, 1");
  CHECK(FormatRanks({0, 1, 2, 5, 7, 8, 9}) == "0-2, 5, 7-9");
}

}  // namespace evenshard
