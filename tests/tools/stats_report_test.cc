#include "tools/stats_report.h"

#include <catch2/catch.hpp>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"

namespace ps {
namespace {

ShardStats Stats(const std::string& text) {
  ShardStats stats;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &stats));
  return stats;
}

// One shard that answers and one that does not.
ClusterReport HalfReport() {
  return {absl::FromUnixSeconds(100),
          {{"127.0.0.1:7001", Stats(R"pb(
              incarnation: 0x1f
              plan_fingerprint: 0xabc
              uptime_seconds: 63
              resident_bytes: 12000000
              parameters: 6848
              parameter_bytes: 27392
              chunks: 6
              pushes: 1200
              repeated_pushes: 7
              skipped_pushes: 3
              pulls: 1300
              bytes_in: 4800000
              bytes_out: 5200000
              updates: 300
              aggregate_seconds: 0.25
              apply_seconds: 1.5
              straggler_wait_seconds: 12.25
              staleness { from: 0 to: 0 pushes: 900 }
              staleness { from: 1 to: 2 pushes: 0 }
              staleness { from: 3 to: 18446744073709551615 pushes: 300 }
              worker {
                worker: 0
                state: JOINED
                address: "ipv4:127.0.0.1:40000"
                iteration: 99
                last_seen_seconds_ago: 0.5
                pushes: 1200
                bytes_in: 4800000
                bytes_out: 5200000
              }
              worker { worker: 1 }
            )pb")},
           {"127.0.0.1:7002", absl::UnavailableError("connection refused")}}};
}

TEST_CASE("The report shows every figure of a shard and of its workers") {
  CHECK(
      StatsText(HalfReport()) ==
      R"(shard  address         state        parameters    bytes  chunks  resident  uptime  incarnation       plan
    0  127.0.0.1:7001  up                6,848  27.4 kB       6   12.0 MB    1m3s  000000000000001f  0000000000000abc
    1  127.0.0.1:7002  unreachable
shard 1 (127.0.0.1:7002) is unreachable: connection refused

shard  pushes  repeated  skipped  updates  pulls       in      out
    0   1,200         7        3      300  1,300  4.80 MB  5.20 MB

shard  aggregating  applying  mean wait for the slowest worker  pushes by staleness
    0        250ms      1.5s                              41ms  0: 75.0%, 3+: 25.0%

worker  state         address               iteration  last seen  pushes       in      out
     0  joined        ipv4:127.0.0.1:40000         99  500ms ago   1,200  4.80 MB  5.20 MB
     1  never joined                                0                  0      0 B      0 B
)");
}

TEST_CASE("A report is complete only when every shard has answered") {
  ClusterReport report = HalfReport();
  CHECK_FALSE(report.complete());
  report.shards.pop_back();
  CHECK(report.complete());
}

TEST_CASE("A worker's counts are summed over the shards") {
  ClusterReport report = HalfReport();
  report.shards[1].stats = Stats(R"pb(
    worker { worker: 0 state: LEFT address: "x" iteration: 101 pushes: 300 bytes_in: 200000 }
  )pb");
  const std::string text = StatsText(report);
  INFO(text);
  CHECK(absl::StrContains(text, "joined, left"));
  CHECK(absl::StrContains(text, "99-101"));
  CHECK(absl::StrContains(text, "1,500  5.00 MB"));
}

TEST_CASE("With an earlier report there are rates, except across a restart of the shard") {
  const ClusterReport earlier = HalfReport();
  ClusterReport report = HalfReport();
  report.time += absl::Seconds(2);
  report.shards[0].stats->set_updates(500);
  report.shards[0].stats->set_bytes_in(6800000);
  SECTION("rates") {
    const std::string text = StatsText(report, &earlier);
    INFO(text);
    CHECK(absl::StrContains(text, "updates/s     in/s  out/s\n"));
    CHECK(absl::StrContains(text, "      100  1.00 MB    0 B\n"));
  }
  SECTION("restart") {
    report.shards[0].stats->set_incarnation(0x2f);
    CHECK_FALSE(absl::StrContains(StatsText(report, &earlier), "1.00 MB"));
  }
}

TEST_CASE("A shard that has given the run up is shown as failed, with the reason") {
  ClusterReport report = HalfReport();
  report.shards[0].stats->set_failure("worker 1 is lost");
  const std::string text = StatsText(report);
  CHECK(absl::StrContains(text, "127.0.0.1:7001  failed "));
  CHECK(absl::StrContains(text, "shard 0 has given the run up: worker 1 is lost\n"));
}

TEST_CASE("When no shard answers there is only the table that says so") {
  ClusterReport report = HalfReport();
  report.shards.erase(report.shards.begin());
  CHECK_FALSE(absl::StrContains(StatsText(report), "pushes"));
}

TEST_CASE("The JSON of a report has all statistics, or the error of a shard") {
  const auto json = nlohmann::json::parse(StatsJson(HalfReport()), nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  const auto& shards = json["shards"];
  REQUIRE(shards.size() == 2);
  CHECK(shards[0]["shard"] == 0);
  CHECK(shards[0]["stats"]["pushes"] == "1200");
  CHECK(shards[0]["stats"]["apply_seconds"] == 1.5);
  CHECK(shards[0]["stats"]["worker"][1]["state"] == "NEVER_JOINED");
  CHECK(shards[1]["error"] == "connection refused");
  CHECK_FALSE(shards[1].contains("stats"));
}

}  // namespace
}  // namespace ps
