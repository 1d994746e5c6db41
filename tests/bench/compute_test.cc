// The benchmark of a compute backend, on the processor: it verifies before it measures.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

constexpr char kConfig[] = "--config=configs/digits_sync.textproto";

TEST_CASE("the compute benchmark verifies the gradients and reports each round") {
  const ScratchFolder folder;
  const std::string path = folder.Path("figures.json");
  Program compute({"bench/compute/compute", kConfig, "--iterations=2", "--warmup=1", "--rounds=3",
                   "--json=" + path});
  const int exit_code = compute.Wait();
  INFO(compute.output());
  REQUIRE(exit_code == 0);
  CHECK(compute.output().find("verified") < compute.output().find("round 1"));
  const auto json =
      nlohmann::json::parse(folder.Read("figures.json"), nullptr, /*allow_exceptions=*/false);
  REQUIRE(json.is_object());
  CHECK(json["batch_size"] == 8);
  const std::vector<double> rounds = json["images_per_second"];
  REQUIRE(rounds.size() == 3);
  for (const double rate : rounds) CHECK(rate > 0);
}

TEST_CASE("the compute benchmark ends when the requests for rounds end") {
  Program compute(
      {"/bin/sh", "-c",
       std::string("printf '\\n\\n' | bench/compute/compute --on-request --iterations=1 ") +
           kConfig});
  const int exit_code = compute.Wait();
  INFO(compute.output());
  CHECK(exit_code == 0);
  CHECK(compute.output().find("round 2:") != std::string::npos);
  CHECK(compute.output().find("round 3:") == std::string::npos);
  CHECK(compute.output().find("median of 2 rounds") != std::string::npos);
}

TEST_CASE("the compute benchmark refuses what it cannot measure") {
  Program emulated({"bench/compute/compute", "--config=configs/vgg16_memory_based.textproto"});
  CHECK(emulated.Wait() == 1);
  CHECK(emulated.output().find("EMULATED, which computes nothing") != std::string::npos);
  Program none({"bench/compute/compute", kConfig, "--iterations=0"});
  CHECK(none.Wait() == 2);
  CHECK(none.output().find("--iterations=0, allowed: at least 1") != std::string::npos);
  Program loud({"bench/compute/compute", kConfig, "--log_level=loud"});
  CHECK(loud.Wait() == 2);
  CHECK(loud.output().find("--log_level: is \"loud\", allowed: trace") != std::string::npos);
}

}  // namespace
}  // namespace evenshard
