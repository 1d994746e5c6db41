#include "tools/psctl/report/stats_report.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"

namespace evenshard {
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
                usage {
                  resident_bytes: 1500000000
                  device: "NVIDIA H200"
                  pci_bus_id: "0000:65:00.0"
                  device_bytes: 9000000000
                  device_utilization_percent: 98
                  device_memory_used_bytes: 21000000000
                  device_memory_total_bytes: 150000000000
                  images_per_second: 1234.56
                  exchange_wait_fraction: 0.125
                }
                usage_seconds_ago: 1.5
              }
              worker { worker: 1 }
            )pb")},
           {"127.0.0.1:7002", absl::UnavailableError("connection refused")}}};
}

TEST_CASE("the report shows every figure of a shard and of its workers") {
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

worker  state         address               data  iteration  last seen  pushes       in      out
     0  joined        ipv4:127.0.0.1:40000  sent         99  500ms ago   1,200  4.80 MB  5.20 MB
     1  never joined                                      0                  0      0 B      0 B

worker  reported  resident  device       PCI bus id    device memory          used by all  busy  images/s  exchange wait
     0  1.5s ago   1.50 GB  NVIDIA H200  0000:65:00.0        9.00 GB  21.0 GB of 150.0 GB   98%    1234.6          12.5%
     1         -         -  -            -                         -                    -     -         -              -
)");
}

TEST_CASE("a figure that a worker does not report is shown as a dash") {
  ClusterReport report = HalfReport();
  WorkerStats& worker = *report.shards[0].stats->mutable_worker(0);
  const auto last_lines = [&] {
    const std::string text = StatsText(report);
    return text.substr(text.find("\nworker  reported"));
  };
  SECTION("on a CPU") {
    worker.mutable_usage()->Clear();
    worker.mutable_usage()->set_resident_bytes(1500000000);
    CHECK(last_lines() == R"(
worker  reported  resident  device  PCI bus id  device memory  used by all  busy  images/s  exchange wait
     0  1.5s ago   1.50 GB  -       -                       -            -     -         -              -
     1         -         -  -       -                       -            -     -         -              -
)");
  }
  SECTION("without NVML") {
    worker.mutable_usage()->clear_device_utilization_percent();
    worker.mutable_usage()->clear_device_memory_used_bytes();
    worker.mutable_usage()->clear_device_memory_total_bytes();
    CHECK(absl::StrContains(last_lines(), "9.00 GB            -     -    1234.6          12.5%\n"));
  }
}

TEST_CASE("the latest of several shards' reports of a worker is shown") {
  ClusterReport report = HalfReport();
  report.shards[1].stats = Stats(R"pb(
    worker {
      worker: 0
      usage { resident_bytes: 7000000 }
      usage_seconds_ago: 0.25
    }
  )pb");
  const std::string text = StatsText(report);
  INFO(text);
  CHECK(absl::StrContains(text, "0  250ms ago   7.00 MB  -"));
}

TEST_CASE("a report is complete only if every shard has answered") {
  ClusterReport report = HalfReport();
  CHECK_FALSE(report.complete());
  report.shards.pop_back();
  CHECK(report.complete());
}

TEST_CASE("a worker's counts are summed over the shards") {
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

TEST_CASE("workers' repeated, skipped and limited pushes have columns only if there are any") {
  ClusterReport report = HalfReport();
  const auto worker_lines = [&] {
    const std::string text = StatsText(report);
    const size_t begin = text.find("\nworker  state");
    return text.substr(begin, text.find("\n\n", begin) - begin);
  };
  SECTION("skipped, on two shards") {
    report.shards[0].stats->mutable_worker(0)->set_skipped_pushes(1000);
    report.shards[1].stats = Stats("worker { worker: 0 state: JOINED skipped_pushes: 34 }");
    CHECK(absl::StrContains(worker_lines(), "  pushes  skipped       in      out\n"));
    CHECK(absl::StrContains(worker_lines(), "   1,200    1,034  4.80 MB  5.20 MB\n"));
    CHECK(absl::StrContains(worker_lines(), "       0        0      0 B      0 B"));
  }
  SECTION("both") {
    report.shards[0].stats->mutable_worker(0)->set_repeated_pushes(7);
    report.shards[0].stats->mutable_worker(1)->set_skipped_pushes(3);
    CHECK(absl::StrContains(worker_lines(), "  pushes  repeated  skipped       in      out\n"));
    CHECK(absl::StrContains(worker_lines(), "   1,200         7        0  4.80 MB  5.20 MB\n"));
    CHECK(absl::StrContains(worker_lines(), "       0         0        3      0 B      0 B"));
  }
  SECTION("limited, on two shards") {
    report.shards[0].stats->mutable_worker(1)->set_limited_pushes(5);
    report.shards[1].stats = Stats("worker { worker: 1 state: JOINED limited_pushes: 1000 }");
    CHECK(absl::StrContains(worker_lines(), "  pushes  limited       in      out\n"));
    CHECK(absl::StrContains(worker_lines(), "   1,200        0  4.80 MB  5.20 MB\n"));
    CHECK(absl::StrContains(worker_lines(), "       0    1,005      0 B      0 B"));
  }
}

TEST_CASE("a shard on which an update waits names its iteration and the workers") {
  ClusterReport report = HalfReport();
  CHECK_FALSE(absl::StrContains(StatsText(report), "has waited"));
  ShardStats::Wait& wait = *report.shards[0].stats->mutable_wait();
  wait.set_iteration(41);
  wait.set_seconds(12.5);
  wait.add_worker(1);
  wait.add_worker(3);
  CHECK(absl::StrContains(StatsText(report),
                          "\nshard 0: iteration 41 has waited 12.5s for worker 1, 3\n"));
  for (int rank = 4; rank < 20; ++rank) wait.add_worker(rank);
  CHECK(absl::StrContains(StatsText(report), "worker 1, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more\n"));
}

TEST_CASE("under QUORUM the report shows whose gradients count, and how often") {
  ClusterReport report = HalfReport();
  CHECK_FALSE(absl::StrContains(StatsText(report), "dropped"));
  ShardStats& stats = *report.shards[0].stats;
  while (stats.worker_size() < 3) stats.add_worker()->set_worker(stats.worker_size() - 1);
  stats.mutable_quorum()->set_iteration(41);
  for (const uint32_t rank : {0, 2}) stats.mutable_quorum()->add_worker(rank);
  stats.mutable_worker(0)->set_counted_iterations(40);
  stats.mutable_worker(1)->set_dropped_iterations(17);
  const std::string text = StatsText(report);
  CHECK(absl::StrContains(text, "\nthe gradients of 2 of 3 workers count in iteration 41: 0, 2\n"));
  CHECK(absl::StrContains(text, "gradients counted"));
  CHECK(absl::StrContains(text, "17"));
}

TEST_CASE("the table shows which workers share memory with how many shards") {
  ClusterReport report = HalfReport();
  report.shards[0].stats->mutable_worker(0)->set_shared_memory(true);
  CHECK(absl::StrContains(StatsText(report), "ipv4:127.0.0.1:40000  shared memory  "));
  report.shards[1].stats = Stats("worker { worker: 0 state: JOINED }");
  CHECK(absl::StrContains(StatsText(report), "  shared memory with 1 of 2  "));
}

TEST_CASE("how the shards recover has a table if the config says how") {
  ClusterReport report = HalfReport();
  CHECK_FALSE(absl::StrContains(StatsText(report), "generation"));
  ShardStats& stats = *report.shards[0].stats;
  stats.mutable_recovery()->set_view(7);
  stats.mutable_recovery()->set_generation(2);
  const auto has = [&](const std::string& lines) {
    const std::string text = StatsText(report);
    INFO(text);
    CHECK(absl::StrContains(text, lines));
  };
  SECTION("before the first checkpoint") {
    has(R"(
shard  view  generation  unconfirmed  to fill  checkpoint  age  held up  failed
    0     7           2            0        0           -    -        0       0

worker)");
  }
  SECTION("with a copy that is filled and checkpoints, of which one failed") {
    *stats.mutable_recovery() =
        Stats(R"pb(
          recovery {
            view: 7
            generation: 2
            replication_lag: 3
            unfilled_chunks: 1250
            checkpoint_iteration: 400
            checkpoint_age_seconds: 12.5
            checkpoint_wait_seconds: 0.25
            checkpoint_failures: 1
            last_checkpoint_failure: "generation-0002-iteration-0000000300: disk full"
          }
        )pb")
            .recovery();
    has(R"(
shard  view  generation  unconfirmed  to fill  checkpoint    age  held up  failed
    0     7           2            3    1,250         400  12.5s    250ms       1
shard 0: a checkpoint failed: generation-0002-iteration-0000000300: disk full

worker)");
    const auto json = nlohmann::json::parse(StatsJson(report), nullptr, false);
    CHECK(json["shards"][0]["stats"]["recovery"]["checkpoint_iteration"] == "400");
  }
}

TEST_CASE("an earlier report gives rates, except across a restart of the shard") {
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
    report.shards[0].stats->set_updates(301);  // one more
    CHECK(absl::StrContains(StatsText(report, &earlier), "      0.5  1.00 MB    0 B\n"));
  }
  SECTION("restart") {
    report.shards[0].stats->set_incarnation(0x2f);
    CHECK_FALSE(absl::StrContains(StatsText(report, &earlier), "1.00 MB"));
  }
  SECTION("a new generation in the same process") {
    report.shards[0].stats->mutable_recovery()->set_generation(2);
    CHECK_FALSE(absl::StrContains(StatsText(report, &earlier), "1.00 MB"));
  }
  SECTION("counts that began anew in the same process") {
    report.shards[0].stats->set_updates(299);
    CHECK_FALSE(absl::StrContains(StatsText(report, &earlier), "1.00 MB"));
  }
}

TEST_CASE("a shard that has given the run up is shown as failed, with the reason") {
  ClusterReport report = HalfReport();
  report.shards[0].stats->set_failure("worker 1 is lost");
  const std::string text = StatsText(report);
  CHECK(absl::StrContains(text, "127.0.0.1:7001  failed "));
  CHECK(absl::StrContains(text, "shard 0 has given the run up: worker 1 is lost\n"));
}

TEST_CASE("texts from shards and workers cannot forge lines or control the terminal") {
  const std::string evil = "x\n\x1b[2J\xc2\x9b";
  ClusterReport report = HalfReport();
  WorkerStats* const worker = report.shards[0].stats->mutable_worker(0);
  worker->set_address(evil);
  worker->mutable_usage()->set_device(std::string(10'000, 'x'));
  worker->mutable_usage()->set_pci_bus_id(evil);
  report.shards[0].stats->set_failure(evil);
  report.shards[1].stats = absl::UnavailableError(evil);
  for (const std::string& text : {StatsText(report, nullptr), StatsJson(report)}) {
    CHECK_FALSE(absl::StrContains(text, "\x1b"));
    CHECK_FALSE(absl::StrContains(text, "\xc2"));
  }
  const std::string text = StatsText(report, nullptr);
  CHECK_FALSE(absl::StrContains(text, "x\n"));
  CHECK_FALSE(absl::StrContains(text, std::string(101, 'x')));
  const std::string escaped = "x\\n\\x1b[2J\\xc2\\x9b";
  CHECK(absl::StrContains(text, "shard 0 has given the run up: " + escaped + "\n"));
  CHECK(absl::StrContains(text, ") is unreachable: " + escaped + "\n"));
}

TEST_CASE("if no shard answers, only the table that says so is printed") {
  ClusterReport report = HalfReport();
  report.shards.erase(report.shards.begin());
  CHECK_FALSE(absl::StrContains(StatsText(report), "pushes"));
}

TEST_CASE("a report's JSON has each shard's statistics or its error") {
  const auto json = nlohmann::json::parse(StatsJson(HalfReport()), nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  const auto& shards = json["shards"];
  REQUIRE(shards.size() == 2);
  CHECK(shards[0]["shard"] == 0);
  CHECK(shards[0]["stats"]["pushes"] == "1200");
  CHECK(shards[0]["stats"]["apply_seconds"] == 1.5);
  CHECK(shards[0]["stats"]["worker"][1]["state"] == "NEVER_JOINED");
  const auto& usage = shards[0]["stats"]["worker"][0]["usage"];
  CHECK(usage["resident_bytes"] == "1500000000");
  CHECK(usage["device_utilization_percent"] == 98);
  CHECK(shards[0]["stats"]["worker"][0]["usage_seconds_ago"] == 1.5);
  CHECK_FALSE(shards[0]["stats"]["worker"][1].contains("usage"));
  CHECK_FALSE(shards[0]["stats"]["worker"][1].contains("usage_seconds_ago"));
  CHECK(shards[1]["error"] == "connection refused");
  CHECK_FALSE(shards[1].contains("stats"));
}

}  // namespace
}  // namespace evenshard
