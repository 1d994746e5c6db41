// The benchmark of a compute backend, on the processor: it verifies before it measures.

#include <catch2/catch.hpp>
#include <string>

#include "tests/testing/program.h"

namespace evenshard {
namespace {

constexpr char kConfig[] = "--config=configs/digits_sync.textproto";

TEST_CASE("the compute benchmark verifies the gradients and reports each round") {
  Program compute({"bench/compute/compute", kConfig, "--iterations=2", "--warmup=1", "--rounds=3"});
  const int exit_code = compute.Wait();
  const std::string& output = compute.output();
  INFO(output);
  REQUIRE(exit_code == 0);
  CHECK(output.find("verified") < output.find("round 1"));
  for (const std::string round : {"round 1: ", "round 2: ", "round 3: "}) {
    const size_t begin = output.find(round);
    REQUIRE(begin != std::string::npos);
    CHECK(std::stod(output.substr(begin + round.size())) > 0);
  }
  CHECK(output.find("batch of 8: ") != std::string::npos);
  CHECK(output.find("median of 3 rounds") != std::string::npos);
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
