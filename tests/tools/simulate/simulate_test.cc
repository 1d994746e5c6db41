#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"
#include "tests/common/placement/simulator/cluster_fixture.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

struct Result {
  int code;
  std::string output;
};

Result Simulate(const std::vector<std::string>& flags,
                const PlannedConfig& run = ClusterConfigOf(2, 2, kMemoryBased, "FULL")) {
  const ScratchFolder folder;
  const std::string config = folder.Write("run.textproto", run.proto().DebugString());
  std::vector<std::string> command = {"tools/simulate/simulate", "--config=" + config};
  command.insert(command.end(), flags.begin(), flags.end());
  Program program(command);
  const int code = program.Wait();
  return {code, program.output()};
}

TEST_CASE("simulate prints the time of an iteration and its bound, as a table or as JSON") {
  const Result text = Simulate({"--workers=4"});
  CHECK(text.code == 0);
  CHECK(absl::StrContains(text.output, "memory_based, full, sync: 4 workers, 2 shards"));
  CHECK(absl::StrContains(text.output, "efficiency"));
  const std::string without = "The exchange alone, without computing: compute.emulated.device is";
  CHECK(absl::StrContains(text.output, without));
  const Result slow = Simulate({"--set=compute.emulated.device=rtx_2080_ti", "--slow_worker=1:2"});
  CHECK(slow.code == 0);
  CHECK_FALSE(absl::StrContains(slow.output, without));
  CHECK(absl::StrContains(text.output, "shard 1"));

  const Result result = Simulate({"--workers=4", "--shards=3", "--link_gbps=1", "--iterations=3",
                                  "--shard_link_gbps=2:0.5", "--format=json"});
  CHECK(result.code == 0);
  const auto json = nlohmann::json::parse(result.output, nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  CHECK(json["schedule"] == "FULL");
  CHECK(json["each_iteration_seconds"].size() == 3);
  CHECK(json["iteration_seconds"].get<double>() >= json["bound_seconds"].get<double>());
  CHECK(json["efficiency"].get<double>() ==
        Approx(json["bound_seconds"].get<double>() / json["iteration_seconds"].get<double>()));
  // All workers train on a batch of 32 in each iteration.
  CHECK(json["images_per_second"].get<double>() * json["iteration_seconds"].get<double>() ==
        Approx(4 * 32).epsilon(0.05));
  REQUIRE(json["shards"].size() == 3);
  REQUIRE(json["workers"].size() == 4);
  double bytes_in = 0;
  for (const auto& shard : json["shards"])
    bytes_in += shard["bytes_in_per_iteration"].get<double>();
  CHECK(bytes_in == 4 * 430000 * 4);
  CHECK(json["shards"][2]["payload_bytes_per_second"].get<double>() ==
        Approx(json["shards"][0]["payload_bytes_per_second"].get<double>() / 2));
  CHECK(json["shards"][2]["utilisation_in"].get<double>() > 0.5);
  CHECK(json["shards"][2]["utilisation_in"].get<double>() <= 1);
}

TEST_CASE("simulate fails with the reason if its result cannot be written") {
  const ScratchFolder folder;
  const std::string config = folder.Write(
      "run.textproto", ClusterConfigOf(2, 2, kMemoryBased, "FULL").proto().DebugString());
  Program full(
      {"/bin/sh", "-c", "exec tools/simulate/simulate --config=" + config + " >/dev/full"});
  CHECK(full.Wait() == 1);
  CHECK(full.output() == "simulate: cannot write to standard output: No space left on device\n");
}

TEST_CASE("the JSON says what decides the bound, and has a timeline on demand") {
  const auto parsed = [](const std::vector<std::string>& flags) {
    const Result result = Simulate(flags);
    INFO(result.output);
    CHECK(result.code == 0);
    const auto json = nlohmann::json::parse(result.output, nullptr, false);
    REQUIRE_FALSE(json.is_discarded());
    return json;
  };
  const auto full = parsed({"--format=json", "--workers=8", "--timeline=5"});
  const auto& term = full["bound"]["term"];
  CHECK(term["kind"] == "SHARD_IN");
  CHECK(term["layer"] == "large");  // the last layer of shard 0
  CHECK(term["compute_seconds"].get<double>() + term["transfer_seconds"].get<double>() ==
        full["bound_seconds"].get<double>());
  CHECK_FALSE(full.contains("in_step_seconds"));
  REQUIRE(full["timeline"]["shards"].size() == 2);
  CHECK(full["timeline"]["shards"][1]["in"].size() == 5);
  CHECK(full["timeline"]["shards"][1]["out"].size() == 5);
  CHECK(5 * full["timeline"]["bin_seconds"].get<double>() ==
        Approx(full["each_iteration_seconds"][3].get<double>()));

  const auto sequential =
      parsed({"--format=json", "--workers=8", "--set=exchange.schedule=SEQUENTIAL"});
  CHECK(sequential["in_step_seconds"].get<double>() ==
        Approx(2 * sequential["bound_seconds"].get<double>()));
  CHECK_FALSE(sequential.contains("timeline"));
}

TEST_CASE("simulate says how long a ring takes, and shards on the workers' hosts") {
  const Result ring = Simulate({"--workers=4"}, RingConfigOf(3, "FULL"));
  INFO(ring.output);
  CHECK(ring.code == 0);
  CHECK(absl::StrContains(ring.output, "custom, ring, full, sync: 4 workers\n"));
  CHECK(absl::StrContains(ring.output, "to exchange all layers of worker 0"));
  const Result hosts = Simulate({"--set=colocated=true", "--format=json"});
  CHECK(hosts.code == 0);
  const auto json = nlohmann::json::parse(hosts.output, nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  CHECK(json["colocated"] == true);
  CHECK(json["bound"]["term"]["kind"] == "HOST_IN");
  const Result ring_json = Simulate({"--format=json"}, RingConfigOf(3, "FULL"));
  const auto parsed = nlohmann::json::parse(ring_json.output, nullptr, false);
  REQUIRE_FALSE(parsed.is_discarded());
  CHECK(parsed["scheme"] == "RING");
  CHECK(parsed["shards"].empty());
  CHECK(parsed["bound"]["term"]["kind"] == "WORKER_LINK");
}

TEST_CASE("simulate refuses impossible arguments and says what is allowed") {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& message) {
    const Result result = Simulate(flags);
    CAPTURE(flags, result.output);
    CHECK(result.code == 2);
    CHECK(absl::StrContains(result.output, message));
  };
  refused({"--workers=0"}, "workers: is 0, allowed: 1 to 1024");
  refused({"--link_gbps=0"}, "--link_gbps: is \"0\", allowed: a number above 0");
  refused({"--link_gbps=-5"}, "--link_gbps: is \"-5\", allowed: a number above 0");
  refused({"--link_gbps=1e-308"}, "simulate: an iteration takes ");
  refused({"--worker_link_gbps=2:10"}, "--worker_link_gbps: the rank of \"2:10\" does not exist");
  refused({"--slow_worker=1:2"}, "--slow_worker: has no effect, since workers compute nothing");
  refused({"--iterations=0"}, "--iterations: is 0, allowed: 1 to 100000");
  refused({"--iterations=2000000000"}, "--iterations: is 2000000000, allowed: 1 to 100000");
  refused({"--representatives=0"}, "--representatives: is 0, allowed: at least 1");
  refused({"--timeline=-1", "--format=json"}, "--timeline: is -1, allowed: 1 to 100000");
  refused({"--timeline=5"}, "--timeline: has no effect on the table, allowed: with --format=json");
  refused({"--format=xml"}, "--format: is \"xml\", allowed: table, json");
  refused({"--log_level=loud"}, "--log_level: is \"loud\", allowed: trace");
  refused({"--lnk_gbps=1"}, "unknown flag --lnk_gbps");
  refused({"--set=wrkers=1"}, "wrkers: unknown field");
  refused({"--set=compute.emulated={device: 'abacus'}"}, "abacus");
}

}  // namespace
}  // namespace evenshard
