#include "tools/psctl/certificates/subjects.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenshard {
namespace {

// A line for each subject: "shard-0 evenshard://evenshard/shard/0 10.0.0.1".
std::vector<std::string> Lines(const std::string& config) {
  const auto parsed = Config::Parse(
      absl::StrCat("model { from_workers {} } update { policy: SYNC } ", config), "config");
  INFO(parsed.status().message());
  REQUIRE(parsed.ok());
  std::vector<std::string> lines;
  for (const Subject& subject : SubjectsOf(*parsed)) {
    lines.push_back(
        absl::StrCat(subject.name, " ", subject.uri, " ", absl::StrJoin(subject.hosts, ",")));
  }
  return lines;
}

TEST_CASE("all shards, spares and workers, the operator and a reader are named") {
  CHECK(Lines(R"pb(
          partition { scheme: MEMORY_BASED }
          shard { address: "10.0.0.1:50051" }
          shard { address: "PS1.example.org:50051" }
          workers: 2
          recovery {
            replicas: 1
            spare { address: "[fd00::0:1]:50051" }
          }
          security { run: "digits" }
        )pb") == std::vector<std::string>{
                      "shard-0 evenshard://digits/shard/0 10.0.0.1",
                      "shard-1 evenshard://digits/shard/1 ps1.example.org",
                      "shard-2 evenshard://digits/shard/2 fd00::1",
                      "worker-0 evenshard://digits/worker/0 ",
                      "worker-1 evenshard://digits/worker/1 ",
                      "operator evenshard://digits/operator ",
                      "reader evenshard://digits/reader ",
                  });
}

TEST_CASE("an address that is no host's gives none") {
  CHECK(Lines(R"pb(
          partition { scheme: MEMORY_BASED }
          shard { address: "0.0.0.0:50051" }
          shard { address: "[::]:50052" }
          shard { address: "unix:/tmp/shard" }
        )pb") == std::vector<std::string>{
                      "shard-0 evenshard://evenshard/shard/0 ",
                      "shard-1 evenshard://evenshard/shard/1 ",
                      "shard-2 evenshard://evenshard/shard/2 ",
                      "worker-0 evenshard://evenshard/worker/0 ",
                      "operator evenshard://evenshard/operator ",
                      "reader evenshard://evenshard/reader ",
                  });
}

TEST_CASE("the workers of a ring are known by their hosts") {
  CHECK(Lines(R"pb(
          topology: RING
          ring { address: "10.0.0.1:50051" address: "10.0.0.2:50051" }
          workers: 2
        )pb") == std::vector<std::string>{
                      "worker-0 evenshard://evenshard/worker/0 10.0.0.1",
                      "worker-1 evenshard://evenshard/worker/1 10.0.0.2",
                      "operator evenshard://evenshard/operator ",
                      "reader evenshard://evenshard/reader ",
                  });
}

}  // namespace
}  // namespace evenshard
