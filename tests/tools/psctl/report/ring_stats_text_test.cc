#include "tools/psctl/report/ring_stats_text.h"

#include <catch2/catch.hpp>
#include <string>

#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "tools/psctl/report/stats_report.h"

namespace evenshard {
namespace {

using Catch::Contains;

RingStats Stats(const std::string& text) {
  RingStats stats;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &stats));
  return stats;
}

// Two workers that answer, and one that does not.
ClusterReport Report() {
  return {.time = absl::FromUnixSeconds(100),
          .workers = {{"10.0.0.1:50051", Stats(R"pb(
                         worker: 0
                         incarnation: 0x1f
                         plan_fingerprint: 0xabc
                         member: [ 0, 1, 2 ]
                         uptime_seconds: 63
                         iteration: 1200
                         bytes_in: 5200000
                         bytes_out: 4800000
                         wait_seconds: 12.5
                         usage {
                           resident_bytes: 1500000000
                           images_per_second: 1234.56
                           exchange_wait_fraction: 0.125
                         }
                         usage_seconds_ago: 1.5
                       )pb")},
                      {"10.0.0.2:50051", absl::UnavailableError("connection refused")},
                      {"10.0.0.3:50051", Stats(R"pb(
                         worker: 2
                         incarnation: 0x2f
                         plan_fingerprint: 0xabc
                         member: [ 0, 1, 2 ]
                         uptime_seconds: 61
                         iteration: 1199
                         bytes_in: 5100000
                         bytes_out: 4700000
                         wait_seconds: 2
                         wait { iteration: 1199 seconds: 7 missing: "worker 1 has sent nothing" }
                         failure: "worker 1 was lost"
                       )pb")}}};
}

TEST_CASE("the report of a ring shows every figure of its workers") {
  CHECK(
      StatsText(Report()) ==
      R"(worker  address         state        iteration     sent  received  waited  uptime  incarnation       plan
     0  10.0.0.1:50051  up               1,200  4.80 MB   5.20 MB   12.5s    1m3s  000000000000001f  0000000000000abc
     1  10.0.0.2:50051  unreachable
     2  10.0.0.3:50051  failed           1,199  4.70 MB   5.10 MB      2s    1m1s  000000000000002f  0000000000000abc
worker 1 (10.0.0.2:50051) is unreachable: connection refused
worker 2 has given the run up: worker 1 was lost
worker 2 has waited 7s in iteration 1199: worker 1 has sent nothing

worker  reported  resident  device  PCI bus id  device memory  used by all  busy  images/s  exchange wait
     0  1.5s ago   1.50 GB  -       -                       -            -     -    1234.6          12.5%
     1         -         -  -       -                       -            -     -         -              -
     2         -         -  -       -                       -            -     -         -              -
)");
}

TEST_CASE("rates are over the time between two reports of the same ring") {
  const ClusterReport earlier = Report();
  ClusterReport report = Report();
  report.time += absl::Seconds(2);
  report.workers[0].stats->set_iteration(1203);
  report.workers[0].stats->set_bytes_out(6800000);
  report.workers[2].stats->set_incarnation(0x3f);  // has formed another ring
  const std::string text = StatsText(report, &earlier);
  INFO(text);
  CHECK_THAT(text, Contains("iterations/s   sent/s  received/s\n"));
  CHECK_THAT(text, Contains("0000000000000abc           1.5  1.00 MB         0 B\n"));
  CHECK_THAT(text, Contains("000000000000003f  0000000000000abc\n"));
}

TEST_CASE("a worker that the ring goes on without is missed by nobody") {
  ClusterReport report = Report();
  CHECK_FALSE(report.complete());
  RingStats& latest = *report.workers[0].stats;
  latest.set_generation(2);
  latest.clear_member();
  latest.add_member(0);
  latest.add_member(2);
  CHECK(report.complete());
  const std::string text = StatsText(report);
  INFO(text);
  CHECK_THAT(text, Contains("     1  10.0.0.2:50051  left out\n"));
  CHECK_THAT(text, !Contains("unreachable"));
  CHECK_THAT(text, Contains("the ring of generation 2 has the workers 0, 2\n"));
}

TEST_CASE("a worker says how it is protected, and which strangers it has met") {
  ClusterReport report = Report();
  CHECK_THAT(StatsText(report), !Contains("insecure") && !Contains("refused "));
  RingStats& stats = *report.workers[0].stats;
  stats.set_protection(ShardStats::INSECURE);
  stats.set_refusals(3);
  ShardStats::Connections& connections = *stats.mutable_connections();
  connections.set_open(5);
  connections.mutable_limits()->set_connections(1000);
  connections.set_timed_out(2);
  connections.set_loud(3);
  CHECK_THAT(
      StatsText(report),
      Contains("worker 0 is insecure: nothing is encrypted, and whoever reaches its port may "
               "do everything\n"
               "worker 0 has refused 3 calls and connections; its log has some of them\n"
               "worker 0 has 5 of 1,000 connections, and has closed 5 of strangers and "
               "readers: 0 of too many, 0 for others, 2 that were late, 3 that sent too much "
               "(limits.strangers)\n"));
}

TEST_CASE("without any answer there are only the reasons") {
  ClusterReport report = Report();
  for (WorkerReport& worker : report.workers) worker.stats = absl::UnavailableError("gone");
  CHECK_FALSE(report.complete());
  CHECK_THAT(StatsText(report),
             Catch::EndsWith("worker 2 (10.0.0.3:50051) is unreachable: gone\n"));
}

TEST_CASE("the JSON of a ring has its workers in place of shards") {
  const auto json = nlohmann::json::parse(StatsJson(Report()), nullptr, false);
  REQUIRE(json["workers"].size() == 3);
  CHECK_FALSE(json.contains("shards"));
  CHECK(json["workers"][0]["worker"] == 0);
  CHECK(json["workers"][0]["address"] == "10.0.0.1:50051");
  CHECK(json["workers"][0]["stats"]["bytes_out"] == "4800000");
  CHECK(json["workers"][1]["error"] == "connection refused");
}

}  // namespace
}  // namespace evenshard
