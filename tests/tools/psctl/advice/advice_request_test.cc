#include "tools/psctl/advice/advice_request.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/placement/simulator/cluster_rates.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

AdviceCluster MustRead(const AdviceRequest& request) {
  absl::StatusOr<AdviceCluster> cluster = ReadRequest(request);
  INFO(cluster.status());
  REQUIRE(cluster.ok());
  return *std::move(cluster);
}

std::string ErrorOf(const AdviceRequest& request) {
  const absl::Status status = ReadRequest(request).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

constexpr char kFile[] = R"(
  model { builtin: "mnist_mlp" }
  partition { scheme: STRIPED }
  shard { address: "a:1" }
  shard { address: "b:1" }
  workers: 4
  update { policy: SYNC }
  training { epochs: 1 batch_size: 8 }
  data { idx { images: "i" labels: "l" } }
  compute { profile: "cpu_epyc_2_threads" }
)";

TEST_CASE("a model, workers, links, device and batch describe a cluster") {
  const AdviceCluster cluster = MustRead({.model = "vgg16",
                                          .workers = "8",
                                          .device = "rtx_2080_ti",
                                          .batch = "16",
                                          .link_gbps = 25,
                                          .latency_us = 20});
  CHECK(cluster.name == "vgg16");
  CHECK(cluster.config.model().builtin() == "vgg16");
  CHECK(cluster.config.workers() == 8);
  CHECK(cluster.config.compute().emulated().device() == "rtx_2080_ti");
  CHECK(cluster.config.training().batch_size() == 16);
  CHECK(cluster.config.worker_link_gbps() == 25);
  CHECK(cluster.server_hosts == 8);
  CHECK(cluster.latency_seconds == Approx(20e-6));
}

TEST_CASE("a config is the cluster, and flags replace what it says") {
  const ScratchFolder folder;
  const std::string file = folder.Write("run.textproto", kFile);
  const AdviceCluster given = MustRead({.config = file});
  CHECK(given.has_file);
  CHECK(given.config.workers() == 4);
  CHECK(given.config.training().batch_size() == 8);
  CHECK(given.server_hosts == 2);
  CHECK(given.latency_seconds == Approx(100e-6));
  const AdviceCluster replaced = MustRead({.config = file,
                                           .overrides = {"colocated=true"},
                                           .workers = "2",
                                           .device = "rtx_2080_ti",
                                           .batch = "64",
                                           .link_gbps = 1});
  CHECK(replaced.config.workers() == 2);
  CHECK(replaced.config.compute().profile() == "rtx_2080_ti");
  CHECK(replaced.config.training().batch_size() == 64);
  CHECK(replaced.config.shard(1).link_gbps() == 1);
  CHECK(replaced.server_hosts == 0);
  CHECK(MustRead({.config = file, .server_hosts = "7"}).server_hosts == 7);
}

TEST_CASE("with fewer workers, fewer shards are beside them") {
  const ScratchFolder folder;
  const std::string file = folder.Write("run.textproto", kFile);
  const ClusterConfig one =
      MustRead({.config = file, .overrides = {"colocated=true"}, .workers = "1"}).config;
  REQUIRE(one.shard_size() == 1);
  CHECK(one.shard(0).address() == "a:1");
  CHECK(ConfiguredRates(one).worker_link.size() == 1);
  CHECK(MustRead({.config = file, .workers = "1"}).config.shard_size() == 2);
}

TEST_CASE("what is wrong or missing is refused, and the error says what is allowed") {
  CHECK(ErrorOf({}) ==
        "psctl advise: has neither or both of --config and --model, allowed: one of the two");
  CHECK_THAT(ErrorOf({.model = "vgg61", .device = "rtx_2080_ti"}),
             Catch::Contains("model.builtin") && Catch::Contains("vgg61"));
  CHECK(ErrorOf({.model = "vgg16", .device = "abacus"}) ==
        "--device: is \"abacus\", allowed: \"rtx_2080_ti\", \"cpu_epyc_2_threads\"");
  CHECK_THAT(ErrorOf({.model = "vgg16"}), Catch::StartsWith("--device: is missing, and"));
  CHECK_THAT(ErrorOf({.model = "vgg16", .device = "none"}),
             Catch::StartsWith("--device: is \"none\", and") &&
                 Catch::EndsWith("allowed: \"rtx_2080_ti\", \"cpu_epyc_2_threads\""));
  CHECK(ErrorOf({.model = "vgg16", .device = "rtx_2080_ti", .link_gbps = 1e-300}) ==
        "--link_gbps: is 1e-300, allowed: at least 0.001");
  CHECK(ErrorOf({.model = "vgg16", .workers = "0", .device = "rtx_2080_ti"}) ==
        "--workers: is \"0\", allowed: 1 to 1024");
  CHECK(ErrorOf({.model = "vgg16", .device = "rtx_2080_ti", .batch = "many"}) ==
        "--batch: is \"many\", allowed: 1 to 65536");
  CHECK(ErrorOf({.model = "vgg16", .device = "rtx_2080_ti", .server_hosts = "-1"}) ==
        "--server_hosts: is \"-1\", allowed: 0 to 1024");
  CHECK(ErrorOf({.overrides = {"workers=2"}, .model = "vgg16"}) ==
        "--set: has no effect with --model, allowed: with --config");
  const ScratchFolder folder;
  const std::string from_workers = folder.Write("run.textproto", R"(
    model { from_workers {} } partition { scheme: STRIPED } shard { address: "a:1" } workers: 2
    update { policy: SYNC })");
  CHECK_THAT(ErrorOf({.config = from_workers}), Catch::Contains("model.from_workers: "));
  const std::string pipe = folder.Path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(ErrorOf({.config = pipe}), Catch::Contains("is a pipe, which can be read once"));
}

}  // namespace
}  // namespace evenshard
