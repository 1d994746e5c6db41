// The C interface, through client/example.c: with shards started by hand and by launch, and with
// what can be wrong.

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

constexpr char kPs[] = "server/ps";
constexpr char kLaunch[] = "tools/launch/launch";
constexpr char kPsctl[] = "tools/psctl/psctl";
constexpr char kExample[] = "client/example";
constexpr char kFound[] = "y = 3.000 x + -1.000";

// Writes a config with unix sockets in the folder.
std::string WriteConfig(const ScratchFolder& folder, const std::string& more = "") {
  const std::string path = folder.Path("cluster.textproto");
  std::ofstream(path) << "model { from_workers {} }\n"
                      << "partition { scheme: LAYER_BASED placement: TENSOR_ROUND_ROBIN }\n"
                      << "shard { address: \"unix:" << folder.Path("0") << "\" }\n"
                      << "shard { address: \"unix:" << folder.Path("1") << "\" }\n"
                      << "workers: 2\nupdate { policy: SYNC deterministic: true }\n"
                      << "optimizer { kind: MOMENTUM learning_rate: 0.1 }\n"
                      << more;
  return path;
}

std::vector<std::string> Example(const std::string& config, int rank, int iterations) {
  return {kExample, config, absl::StrCat(rank), absl::StrCat(iterations)};
}

TEST_CASE("two workers in C train on two shards, and the model can be saved and asked for") {
  const ScratchFolder folder;
  const std::string config = WriteConfig(folder);
  Program ps0({kPs, "--config=" + config, "--shard=0"});
  Program ps1({kPs, "--config=" + config, "--shard=1"});
  for (Program* ps : {&ps0, &ps1}) ps->WaitFor("waits for worker 0 to declare the model");
  Program stats_before({kPsctl, "stats", "--config=" + config});
  CHECK(stats_before.Wait() != 0);
  CHECK_THAT(stats_before.output(), Contains("waits for worker 0 to declare the model"));

  Program worker0(Example(config, 0, 400));
  Program worker1(Example(config, 1, 400));
  CHECK(worker0.Wait() == 0);
  CHECK(worker1.Wait() == 0);
  CHECK_THAT(worker0.output(), Contains(absl::StrCat("worker 0 of 2: ", kFound)));
  CHECK_THAT(worker1.output(), Contains(absl::StrCat("worker 1 of 2: ", kFound)));

  Program plan({kPsctl, "plan", "--config=" + config});
  CHECK(plan.Wait() == 0);
  CHECK_THAT(plan.output(), Contains("from_workers on 2 shards for 2 workers"));
  Program save({kPsctl, "save", "--config=" + config, "--out=" + folder.Path("line.safetensors")});
  CHECK(save.Wait() == 0);
  std::ifstream saved(folder.Path("line.safetensors"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(saved), {}};
  CHECK_THAT(bytes, Contains("\"line.slope\""));

  Program shutdown({kPsctl, "shutdown", "--config=" + config});
  CHECK(shutdown.Wait() == 0);
  CHECK(ps0.Wait() == 0);
  CHECK(ps1.Wait() == 0);
}

TEST_CASE("a ps that knows no model ends on a signal and on the Shutdown RPC") {
  const ScratchFolder folder;
  const std::string config = WriteConfig(folder);
  Program ps({kPs, "--config=" + config, "--shard=0"});
  ps.WaitFor("waits for worker 0 to declare the model");
  const bool by_signal = GENERATE(true, false);
  if (by_signal) {
    kill(ps.pid(), SIGTERM);
  } else {
    Program shutdown({kPsctl, "shutdown", "--config=" + config});
    shutdown.Wait();
  }
  CHECK(ps.Wait() == 0);
}

TEST_CASE("launch runs a program of one's own as the workers") {
  const ScratchFolder folder;
  const std::string recovery = GENERATE("", "recovery { replicas: 1 worker_loss: WAIT }");
  CAPTURE(recovery);
  const std::string config = WriteConfig(folder, recovery);
  // The rank comes from the environment.
  Program launch({kLaunch, "--config=" + config, "--save=" + folder.Path("line.safetensors"), "--",
                  "sh", "-c", absl::StrCat("exec ", kExample, " $EVENSHARD_CONFIG $RANK 400")});
  CHECK(launch.Wait() == 0);
  CHECK_THAT(launch.output(), Contains(absl::StrCat("[worker 0] worker 0 of 2: ", kFound)));
  CHECK_THAT(launch.output(), Contains(absl::StrCat("[worker 1] worker 1 of 2: ", kFound)));
  CHECK_THAT(launch.output(), Contains("the run succeeded"));
}

TEST_CASE("launch says which programs a config needs") {
  const ScratchFolder folder;
  const std::string config = WriteConfig(folder);
  Program without({kLaunch, "--config=" + config});
  CHECK(without.Wait() == 2);
  CHECK_THAT(without.output(), Contains("model.from_workers: needs a program"));
  Program worker({"worker/worker", "--config=" + config, "--rank=0"});
  CHECK(worker.Wait() == 2);
  CHECK_THAT(worker.output(), Contains("is for programs that bring a model"));
}

TEST_CASE("what is wrong with a worker's call is said") {
  const ScratchFolder folder;
  const std::string config = WriteConfig(folder, "limits { startup_seconds: 1 }");
  Program rank(Example(config, 2, 1));
  CHECK(rank.Wait() == 1);
  CHECK_THAT(rank.output(), Contains("the config has 2 workers, ranks 0 to 1"));
  Program missing(Example(folder.Path("none"), 0, 1));
  CHECK(missing.Wait() == 1);
  CHECK_THAT(missing.output(), Contains("cannot read the config file"));
  Program alone(Example(config, 0, 1));
  CHECK(alone.Wait() == 1);
  CHECK_THAT(alone.output(), Contains("shard 0"));
}

}  // namespace
}  // namespace evenshard
