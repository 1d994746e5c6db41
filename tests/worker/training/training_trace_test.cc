// The trace of a worker's training.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/cluster.h"
#include "tests/testing/scratch_folder.h"
#include "tests/worker/training/whole_workers.h"
#include "worker/trace/trace.h"

namespace evenshard {
namespace {

using Catch::Contains;

}  // namespace

TEST_CASE("a trace shows each layer's computation, wait, push and pull under every schedule") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  CAPTURE(schedule);
  const ScratchFolder folder;
  TestCluster cluster(
      MustParse(kDigits, {"workers=1", "training.iterations=3", "exchange.schedule=" + schedule}));
  const RealClock clock;
  auto trace = Trace::Create(folder.Path("trace"), /*rank=*/0, &cluster.config().model(), &clock);
  REQUIRE(trace.ok());
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = 0,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .trace = trace->get()});
  REQUIRE(trainer.ok());
  RequireAllOk({(*trainer)->Run()});
  REQUIRE((*trace)->Close().ok());

  std::map<std::string, int> spans;               // of the thread that trains, by name
  std::map<std::string, std::vector<double>> on;  // begins and ends beside it, by name
  double end = 0;
  for (const nlohmann::json& event : nlohmann::json::parse(folder.Read("trace"))) {
    const std::string phase = event.at("ph");
    if (phase == "M") continue;
    CAPTURE(event.dump());
    const std::string name = event.at("name");
    const int64_t iteration = event.at("args").at("iteration");
    CHECK(iteration >= 0);
    CHECK(iteration < 3);
    if (phase != "X") {
      CHECK(phase == (on[name].size() % 2 == 0 ? "b" : "e"));
      on[name].push_back(event.at("ts"));
      continue;
    }
    ++spans[name];
    CHECK(event.at("dur") >= 0);
    if (name == "load the batch") continue;  // told when its iteration is over
    CHECK(event.at("ts") >= end - 1);        // as exact as a double is
    end = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  CHECK(spans == std::map<std::string, int>{{"load the batch", 3},
                                            {"wait fc1", 3},
                                            {"forward fc1", 3},
                                            {"wait fc2", 3},
                                            {"forward, loss and backward fc2", 3},
                                            {"backward fc1", 3},
                                            {"wait for the exchange", 3}});
  for (const std::string layer : {"fc1", "fc2"}) {
    CAPTURE(layer);
    const std::vector<double>& push = on["push " + layer];
    const std::vector<double>& pull = on["pull " + layer];
    REQUIRE(push.size() == 6);
    REQUIRE(pull.size() == 6);
    for (const auto& times : {push, pull}) CHECK(std::is_sorted(times.begin(), times.end()));
    CHECK(push.front() <= pull.front());
  }
}

TEST_CASE("a trace that cannot be written is an error") {
  const PlannedConfig config = MustParse(kDigits, {"workers=1"});
  const RealClock clock;
  const auto trace = Trace::Create("/nowhere/trace", 0, &config.model(), &clock);
  CHECK(absl::IsNotFound(trace.status()));
  CHECK_THAT(std::string(trace.status().message()), Contains("cannot write /nowhere/trace"));
}

TEST_CASE("a trace on a full disk says so in the end, however early the disk was full") {
  const int events = GENERATE(0, 1, 10'000);
  const PlannedConfig config = MustParse(kDigits, {"workers=1"});
  const RealClock clock;
  const auto trace = Trace::Create("/dev/full", 0, &config.model(), &clock);
  REQUIRE(trace.ok());
  for (int i = 0; i < events; ++i) (*trace)->Begin("push", /*layer=*/0, i);
  errno = 0;  // whatever happens in the process since
  const absl::Status closed = (*trace)->Close();
  CHECK(absl::IsResourceExhausted(closed));
  CHECK_THAT(std::string(closed.message()),
             Contains("cannot write /dev/full: No space left on device"));
}

}  // namespace evenshard
