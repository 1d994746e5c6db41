#include "common/base/doubling_notice.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/time/time.h"

namespace evenshard {

TEST_CASE("something that grows is mentioned at its first size and whenever it has doubled") {
  DoublingNotice<int> notice(3);
  std::vector<int> mentioned;
  for (int size = 1; size <= 50; ++size) {
    if (notice.Grew(size)) mentioned.push_back(size);
  }
  CHECK(mentioned == std::vector<int>{3, 6, 12, 24, 48});
}

TEST_CASE("doubling counts from the size that was mentioned, however late that was") {
  DoublingNotice<absl::Duration> notice(absl::Seconds(5));
  CHECK_FALSE(notice.Grew(absl::Milliseconds(4999)));
  CHECK(notice.Grew(absl::Seconds(7)));
  CHECK_FALSE(notice.Grew(absl::Seconds(13)));
  CHECK(notice.Grew(absl::Seconds(14)));
}

TEST_CASE("the end is mentioned once, and only of what was mentioned itself") {
  DoublingNotice<int> notice(4);
  CHECK_FALSE(notice.Grew(3));
  CHECK_FALSE(notice.Over());
  CHECK(notice.Grew(4));
  CHECK(notice.Over());
  CHECK_FALSE(notice.Over());
}

TEST_CASE("what follows is mentioned if it is twice as large, or from the start by a new object") {
  DoublingNotice<int> notice(4);
  CHECK(notice.Grew(5));
  CHECK(notice.Over());
  CHECK_FALSE(notice.Grew(9));
  CHECK_FALSE(notice.Over());
  CHECK(notice.Grew(10));
  notice = DoublingNotice<int>(4);
  CHECK_FALSE(notice.Over());
  CHECK(notice.Grew(4));
}

}  // namespace evenshard
