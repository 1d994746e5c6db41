// Tests psctl advise as a program.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/config.pb.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr char kPsctl[] = "tools/psctl/psctl";

struct Result {
  int code;
  std::string output;
};

Result Run(const std::string& verb, const std::vector<std::string>& flags) {
  std::vector<std::string> command = {kPsctl, verb};
  command.insert(command.end(), flags.begin(), flags.end());
  Program program(command);
  const int code = program.Wait();
  return {code, program.output()};
}

// A cluster that is predicted in no time.
const std::vector<std::string> kCluster = {"--model=mnist_mlp", "--workers=4", "--link_gbps=100",
                                           "--device=rtx_2080_ti", "--server_hosts=2"};

std::vector<std::string> With(std::vector<std::string> flags) {
  flags.insert(flags.begin(), kCluster.begin(), kCluster.end());
  return flags;
}

TEST_CASE("psctl advise prints a ranking and a sentence of advice") {
  const Result text = Run("advise", kCluster);
  INFO(text.output);
  CHECK(text.code == 0);
  CHECK_THAT(text.output,
             Contains("mnist_mlp, 4 workers, rtx_2080_ti, batch 32, links of 100 Gb/s, "
                      "100us a message\n"));
  CHECK_THAT(text.output, Contains("*  one worker alone"));
  CHECK_THAT(text.output, Contains("What computes something else:\n"));
  // Four workers wait for messages for much longer than such a model takes.
  CHECK_THAT(text.output, Contains("Take one worker alone: ") &&
                              Contains("4 workers are slower: ") && Contains("limited by latency"));
}

TEST_CASE("psctl advise says what it assumes of the links, and messages may take no time") {
  const auto head = [](const std::string& shards, std::vector<std::string> flags) {
    const ScratchFolder folder;
    const std::string file = folder.Write("run.textproto", R"(
      model { builtin: "mnist_mlp" } partition { scheme: MEMORY_BASED } workers: 1
      update { policy: SYNC } training { iterations: 1 } data { synthetic {} }
      compute { profile: "rtx_2080_ti" })" + shards);
    flags.push_back("--config=" + file);
    const Result result = Run("advise", flags);
    const std::string text = result.output.substr(0, result.output.find('\n'));
    return text.substr(std::min(text.size(), file.size()));
  };
  CHECK(head("shard { address: 'a:1' link_gbps: 5 } shard { address: 'b:1' link_gbps: 10 } "
             "worker_link_gbps: 2",
             {"--latency_us=0"}) ==
        ", 1 worker, rtx_2080_ti, batch 32, links of 2 to 10 Gb/s, no latency");
  const std::string sockets = "shard { address: 'unix:a' } shard { address: 'unix:b' }";
  CHECK(head(sockets, {}) ==
        ", 1 worker, rtx_2080_ti, batch 32, links of 10 Gb/s assumed though all are on one host, "
        "100us a message");
  CHECK(head(sockets, {"--link_gbps=40"}) ==
        ", 1 worker, rtx_2080_ti, batch 32, links of 40 Gb/s, 100us a message");
}

TEST_CASE("psctl advise has all choices as JSON") {
  const Result result = Run("advise", With({"--format=json"}));
  CHECK(result.code == 0);
  const auto json = nlohmann::json::parse(result.output, nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  CHECK(json["workers"] == 4);
  CHECK(json["same"][json["chosen"].get<int>()]["name"] == "one worker alone");
  double last = json["same"][0]["images_per_second"];
  for (const auto& choice : json["same"]) {
    CHECK(choice["images_per_second"] <= last);
    CHECK(choice["difference"].is_null());
    CHECK(choice["connections"] == Limits().connections());
    last = choice["images_per_second"];
  }
  CHECK(json["changed"].size() > 4);
  CHECK(json["refused"].size() > 0);  // INT8 in a ring
}

TEST_CASE("psctl advise writes the config of its choice, which psctl plan takes") {
  const ScratchFolder folder;
  const std::string out = folder.Path("advised.textproto");
  // Links that are fast enough for several workers.
  const Result written =
      Run("advise", {"--model=vgg16", "--workers=2", "--link_gbps=100", "--device=rtx_2080_ti",
                     "--server_hosts=0", "--write=" + out});
  INFO(written.output);
  REQUIRE(written.code == 0);
  CHECK_THAT(folder.Read("advised.textproto"), Contains("# Written by psctl advise: "));
  const Result plan = Run("plan", {"--config=" + out});
  INFO(plan.output);
  CHECK(plan.code == 0);
  CHECK_THAT(plan.output, Contains("predicted "));
  const Result again = Run("advise", {"--config=" + out, "--write=" + out});
  CHECK(again.code == 2);
  CHECK_THAT(again.output, Contains("--write: \"" + out +
                                    "\" exists, allowed: a new file, or "
                                    "--force"));
  CHECK(Run("advise", {"--config=" + out, "--write=" + out, "--force"}).code == 0);
  const Result slow =
      Run("advise", {"--model=vgg16", "--workers=8", "--link_gbps=10", "--device=rtx_2080_ti",
                     "--server_hosts=0", "--write=" + out, "--force"});
  CHECK_THAT(slow.output, Contains("Take striped on all workers with the schedule FULL and "
                                   "limits.connections: 1: "));
  CHECK_THAT(folder.Read("advised.textproto"), Contains("limits {\n  connections: 1\n}"));
}

TEST_CASE("psctl advise keeps the paths and the addresses of a config that it changes") {
  const ScratchFolder folder;
  const std::string file = folder.Write("run.textproto", R"(
    model { builtin: "mnist_mlp" } partition { scheme: LAYER_BASED } shard { address: "ps0:1" }
    shard { address: "ps1:1" } colocated: true workers: 4 update { policy: SYNC } training { epochs: 2 }
    data { idx { images: "i" labels: "/abs/l" } } compute { profile: "rtx_2080_ti" })");
  const std::string out = folder.Path("other.textproto");
  const Result written = Run("advise", {"--config=" + file, "--write=" + out});
  INFO(written.output);
  REQUIRE(written.code == 0);
  CHECK_THAT(written.output, Contains("as in " + file));
  const std::string config = folder.Read("other.textproto");
  CHECK_THAT(config, Contains("images: \"" + folder.Path("i") + "\"") &&
                         Contains("labels: \"/abs/l\"") && Contains("address: \"ps0:1\""));
}

TEST_CASE("psctl advise keeps a certificate of its own for each process") {
  const ScratchFolder folder;
  const std::string file = folder.Write("run.textproto", R"(
    model { builtin: "mnist_mlp" } partition { scheme: LAYER_BASED } shard { address: "ps0:1" }
    workers: 2 update { policy: SYNC } training { iterations: 2 } compute { profile: "rtx_2080_ti" }
    data { idx { images: "i" labels: "l" } }
    security { certificate: "keys/{name}.pem" key: "/k/{name}.key" authority: "keys/a.pem" })");
  const std::string out = folder.Path("other.textproto");
  const Result written = Run("advise", {"--config=" + file, "--write=" + out});
  INFO(written.output);
  REQUIRE(written.code == 0);
  const std::string config = folder.Read("other.textproto");
  CHECK_THAT(config, Contains("certificate: \"" + folder.Path("keys/{name}.pem") + "\"") &&
                         Contains("key: \"/k/{name}.key\"") &&
                         Contains("authority: \"" + folder.Path("keys/a.pem") + "\""));
}

TEST_CASE("psctl advise draws a chart") {
  const ScratchFolder folder;
  const std::string svg = folder.Path("chart.svg");
  CHECK(Run("advise", With({"--svg=" + svg})).code == 0);
  const std::string text = folder.Read("chart.svg");
  CHECK_THAT(text, Catch::StartsWith("<svg ") && Contains(">one worker alone</text>") &&
                       Contains(">Computes something else</text>"));
  CHECK(Run("advise", With({"--svg=" + svg})).code == 2);
}

TEST_CASE("psctl advise refuses what it cannot answer") {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& message) {
    const Result result = Run("advise", flags);
    CAPTURE(flags, result.output);
    CHECK(result.code == 2);
    CHECK_THAT(result.output, Contains(message));
  };
  refused({}, "has neither or both of --config and --model");
  refused({"--model=vgg16"}, "--device: is missing");
  refused({"--model=vgg61", "--device=rtx_2080_ti"}, "vgg61");
  refused(With({"--link_gbps=0"}), "--link_gbps");
  refused({"--config=/nowhere"}, "/nowhere");
  refused(With({"--write=/nowhere/x"}), "/nowhere/x");
  const ScratchFolder folder;
  refused(With({"--write=" + folder.Path("x"), "--svg=" + folder.Path("./x")}), "the same file");
  const Result late = Run("advise", With({"--svg=" + folder.Path(std::string(300, 'x'))}));
  CHECK(late.code == 1);
  CHECK_THAT(late.output, Contains("File name too long"));
}

}  // namespace
}  // namespace evenshard
