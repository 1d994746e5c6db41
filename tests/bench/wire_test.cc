// The wire benchmark itself, on a small model: it verifies before it measures, and ends clean.

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/program.h"

namespace evenshard {
namespace {

// How many processes of the benchmark that serve as shards or workers are alive.
int RolesAlive() {
  int alive = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    alive += line.find("bench/wire/role") != std::string::npos;
  }
  return alive;
}

}  // namespace

TEST_CASE("the wire benchmark verifies, measures and reports both systems") {
  Program wire({"bench/wire/wire", "--quick", "--model=mnist_mlp", "--workers=1,2", "--shards=1",
                "--transports=tcp", "--repeat=1", "--format=json", "--log_level=info"});
  const int exit_code = wire.Wait();
  INFO(wire.output());
  REQUIRE(exit_code == 0);
  const size_t begin = wire.output().find("{\n");
  REQUIRE(begin != std::string::npos);
  const auto json =
      nlohmann::json::parse(wire.output().substr(begin), nullptr, /*allow_exceptions=*/false);
  REQUIRE(json.is_object());
  CHECK(wire.output().find("worker 0 joined from") < begin);
  CHECK(json["headline"]["goodput_over_raw_socket"].get<double>() > 0);
  CHECK(RolesAlive() == 0);
}

TEST_CASE("the wire benchmark measures what clipping by the norm costs") {
  Program wire({"bench/wire/wire", "--quick", "--workers=2", "--shards=2", "--transports=tcp,unix",
                "--repeat=1", "--format=json", "--clip",
                "--model=input { channels: 8 height: 1 width: 1 } layer { name: 'a' linear { "
                "out_features: 8 } } layer { name: 'b' linear { out_features: 8 } }"});
  const int exit_code = wire.Wait();
  INFO(wire.output());
  REQUIRE(exit_code == 0);
  const auto json = nlohmann::json::parse(wire.output().substr(wire.output().find("{\n")), nullptr,
                                          /*allow_exceptions=*/false);
  REQUIRE(json.is_object());
  for (const auto& layout : json["goodput"]) {
    CHECK(layout["clipped"]["iteration_seconds"]["median"].get<double>() > 0);
    CHECK(layout["clipped_iteration_ratio"].get<double>() > 0);
  }
}

TEST_CASE("the wire benchmark verifies shorter encodings and counts the bytes that they save") {
  // With the bytes of a gradient and of the parameters.
  for (const auto& [encoding, bytes] : {std::pair<std::string, int>("float16", 2 * 2 * 13002),
                                        {"bfloat16", 2 * 2 * 13002},
                                        {"int8", 13104 + 4 * 13002},
                                        {"int4", 6907 + 4 * 13002}}) {
    CAPTURE(encoding);
    Program wire({"bench/wire/wire", "--quick", "--model=mnist_mlp", "--workers=3", "--shards=1",
                  "--transports=unix", "--repeat=1", "--format=json", "--encoding=" + encoding,
                  encoding == "int4" ? "--error_feedback" : "--repeat=1"});
    const int exit_code = wire.Wait();
    INFO(wire.output());
    REQUIRE(exit_code == 0);
    const size_t begin = wire.output().find("{\n");
    REQUIRE(begin != std::string::npos);
    const auto json =
        nlohmann::json::parse(wire.output().substr(begin), nullptr, /*allow_exceptions=*/false);
    REQUIRE(json.is_object());
    const auto& layout = json["goodput"][0];
    CHECK(layout["ps"]["bytes_per_iteration"] == 3 * bytes);
    CHECK(layout["raw"]["bytes_per_iteration"] == 3 * 2 * 4 * 13002);
    CHECK(layout["ps"]["iteration_seconds"]["median"].get<double>() > 0);
  }
}

TEST_CASE("the wire benchmark leaves no process behind when it is interrupted or killed") {
  for (const int signal : {SIGINT, SIGKILL}) {
    {
      Program wire({"bench/wire/wire", "--model=mnist_mlp", "--transports=unix"});
      wire.WaitFor("unix");  // the first line of its progress
      kill(wire.pid(), signal);
      CHECK(wire.Wait() != 0);
    }
    // The output has ended, so nobody holds it open any more.
    CHECK(RolesAlive() == 0);
  }
}

TEST_CASE("a wrong command line of the wire benchmark is refused") {
  for (const char* wrong :
       {"--workers=0", "--transports=udp", "--format=xml", "--model=vgg61", "--encoding=int16"}) {
    CAPTURE(wrong);
    Program wire({"bench/wire/wire", wrong});
    CHECK(wire.Wait() != 0);
    CHECK_FALSE(wire.output().empty());
  }
}

}  // namespace evenshard
