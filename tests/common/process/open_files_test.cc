#include "common/process/open_files.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <string>

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

rlimit Limit() {
  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit;
}

}  // namespace

TEST_CASE("the soft limit of open files is raised as far as it must be") {
  const rlimit before = Limit();
  REQUIRE(before.rlim_max >= 512);
  rlimit small = before;
  small.rlim_cur = 200;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &small) == 0);
  CHECK(ReserveOpenFiles(50, "connections to 2 shards").ok());
  CHECK(Limit().rlim_cur == 200);
  CHECK(ReserveOpenFiles(300, "connections to 75 shards").ok());
  CHECK(Limit().rlim_cur >= 364);
  CHECK(Limit().rlim_cur < 450);
  CHECK(Limit().rlim_max == before.rlim_max);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("what the hard limit does not allow is said") {
  rlimit small = Limit();
  small.rlim_cur = small.rlim_max = 300;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &small) == 0);
  const absl::Status refused = ReserveOpenFiles(1000, "connections to 250 shards");
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains("connections to 250 shards need about 10") &&
                 Contains("open files, and this process may have 300 (ulimit -Hn)"));
}

}  // namespace evenshard
