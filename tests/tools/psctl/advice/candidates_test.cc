#include "tools/psctl/advice/candidates.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/placement/plan/device_profile.h"
#include "common/placement/planned_config.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/simulator.h"
#include "tools/psctl/advice/choice.h"

namespace evenshard {
namespace {

constexpr char kRun[] = R"(
  model {
    input { channels: 50 height: 1 width: 1 }
    layer { name: "front" linear { out_features: 400 } }
    layer { name: "large" linear { out_features: 1000 } }
    layer { name: "back" linear { out_features: 10 } }
  }
  partition { scheme: LAYER_BASED }
  shard { address: "ps0:1" link_gbps: 5 }
  shard { address: "ps1:1" link_gbps: 10 }
  workers: 4
  worker_link_gbps: 2
  training { iterations: 1 }
  compute { backend: EMULATED emulated { device: "rtx_2080_ti" } }
)";

AdviceCluster ClusterOf(const std::string& more, int server_hosts = 2) {
  const absl::StatusOr<Config> config = Config::Parse(std::string(kRun) + more, "f");
  INFO(config.status());
  REQUIRE(config.ok());
  return {.name = "f",
          .has_file = true,
          .config = config->proto(),
          .server_hosts = server_hosts,
          .latency_seconds = 1e-4};
}

Candidate Named(const std::vector<Candidate>& candidates, const std::string& name) {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& each) { return NameOf(each) == name; });
  CAPTURE(name);
  REQUIRE(found != candidates.end());
  return *found;
}

PlannedConfig MustPlan(const Candidate& candidate) {
  absl::StatusOr<PlannedConfig> config =
      PlannedConfig::Parse(candidate.config.DebugString(), candidate.name);
  INFO(config.status());
  REQUIRE(config.ok());
  return *std::move(config);
}

TEST_CASE("parameters may be in every place, and a candidate is a valid config") {
  std::vector<std::string> names;
  for (const Candidate& candidate : Placements(ClusterOf("update { policy: SYNC }"))) {
    names.push_back(candidate.name);
    CHECK(candidate.difference.empty());
    // Three layers are not enough for four shards of whole layers.
    if (candidate.name == "layer-based on all workers") continue;
    MustPlan(candidate);
  }
  CHECK(names ==
        std::vector<std::string>{"one worker alone", "ring", "one master, worker 0",
                                 "striped on 2 of the workers", "memory-based on 2 of the workers",
                                 "layer-based on 2 of the workers", "striped on all workers",
                                 "memory-based on all workers", "layer-based on all workers",
                                 "one server", "striped on 2 servers", "memory-based on 2 servers",
                                 "layer-based on 2 servers"});
}

TEST_CASE("servers have the addresses and links of the config, and as far as there are any") {
  const AdviceCluster cluster = ClusterOf("update { policy: SYNC }", 4);
  const Candidate four = Named(Placements(cluster), "striped on 4 servers");
  CHECK(four.hosts() == 8);
  CHECK(four.config.shard(0).address() == "ps0:1");
  CHECK(four.config.shard(0).link_gbps() == 5);
  CHECK(four.config.shard(3).address() == "127.0.0.1:50054");
  CHECK(four.config.shard(3).link_gbps() == 10);
  CHECK(four.config.worker_link_gbps() == 2);
  for (const Candidate& candidate : Placements(ClusterOf("update { policy: SYNC }", 0))) {
    CHECK(candidate.server_hosts == 0);
  }
}

TEST_CASE("shards on the workers' hosts have the workers' links") {
  const AdviceCluster cluster = ClusterOf("update { policy: SYNC }");
  const Candidate all = Named(Placements(cluster), "striped on all workers");
  CHECK(all.config.colocated());
  CHECK(all.config.shard_size() == 4);
  CHECK(all.hosts() == 4);
  CHECK_FALSE(all.config.shard(0).has_link_gbps());
  // No address of a worker's host is known.
  CHECK(all.config.shard(0).address() == "127.0.0.1:50051");
  CHECK(all.config.worker_link_gbps() == 2);
}

TEST_CASE("addresses of workers' hosts are kept") {
  const AdviceCluster colocated = ClusterOf("update { policy: SYNC } colocated: true", 0);
  CHECK(Named(Placements(colocated), "striped on all workers").config.shard(1).address() ==
        "ps1:1");
  const ClusterConfig ring = Named(Placements(colocated), "ring").config;
  CHECK(ring.ring().address(1) == "ps1:1");
  CHECK(ring.ring().address(2) == "127.0.0.1:50053");
  CHECK(ring.worker_link_gbps() == 2);  // the slowest
  // The hosts' links stay as they are, too.
  const ClusterConfig all = Named(Placements(colocated), "striped on all workers").config;
  CHECK(all.shard(0).link_gbps() == 5);
  CHECK(all.shard(1).link_gbps() == 10);
  CHECK(all.shard(3).link_gbps() == 2);
}

TEST_CASE("the hosts of fewer shards keep the links of all") {
  const AdviceCluster cluster = ClusterOf(
      "update { policy: SYNC } colocated: true shard { address: 'ps2:1' link_gbps: 10 }"
      "shard { address: 'ps3:1' link_gbps: 1 }");
  for (const char* const name : {"one master, worker 0", "striped on 2 of the workers", "ring"}) {
    CAPTURE(name);
    CHECK(Named(Placements(cluster), name).config.worker_link_gbps() == 1);
  }
  CHECK(Named(Placements(cluster), "striped on all workers").config.shard(3).link_gbps() == 1);
  // With --workers there are fewer hosts, too.
  AdviceCluster fewer = cluster;
  fewer.config.set_workers(3);
  CHECK(Named(Placements(fewer), "one master, worker 0").config.worker_link_gbps() == 10);
  // No worker is left that has another link than those of the shards.
  for (const char* const name : {"ring", "striped on 2 servers"}) {
    CAPTURE(name);
    CHECK(Named(Placements(fewer), name).config.worker_link_gbps() == 5);
  }
  MustPlan(Named(Placements(fewer), "striped on all workers"));
}

TEST_CASE("a host whose link the config does not tell has that of the others") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC } colocated: true", 0);
  cluster.config.clear_worker_link_gbps();
  cluster.config.mutable_shard(0)->clear_link_gbps();
  cluster.config.mutable_shard(0)->set_server_gbps(5);
  for (const Candidate& candidate : Placements(cluster)) {
    if (candidate.name == "layer-based on all workers") continue;
    CAPTURE(candidate.name);
    CHECK(MustPlan(candidate).proto().worker_link_gbps() == 10);
  }
}

TEST_CASE("what limits a shard limits it in every place, and those that are added") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }", 4);
  for (ShardAddress& shard : *cluster.config.mutable_shard()) shard.set_server_gbps(3);
  const Candidate servers = Named(Placements(cluster), "striped on 4 servers");
  for (const ShardAddress& shard : servers.config.shard()) CHECK(shard.server_gbps() == 3);
  MustPlan(servers);
  // The config does not tell what limits a shard on a worker's host.
  CHECK(Named(Placements(cluster), "one master, worker 0").config.shard(0).server_gbps() == 0);
  cluster.config.set_colocated(true);
  const Candidate all = Named(Placements(cluster), "striped on all workers");
  for (const ShardAddress& shard : all.config.shard()) CHECK(shard.server_gbps() == 3);
  MustPlan(all);
}

TEST_CASE("servers beside a ring have links as fast as its workers'") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }", 4);
  cluster.config.clear_shard();
  cluster.config.clear_partition();
  cluster.config.set_topology(ClusterConfig::RING);
  for (int i = 0; i < 4; ++i) cluster.config.mutable_ring()->add_address("127.0.0.1:50051");
  const Candidate servers = Named(Placements(cluster), "striped on 4 servers");
  for (const ShardAddress& shard : servers.config.shard()) CHECK(shard.link_gbps() == 2);
  CHECK(servers.config.worker_link_gbps() == 2);
  CHECK(Named(Placements(cluster), "ring").config.worker_link_gbps() == 2);
}

TEST_CASE("addresses that are made up differ from those that the config has") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }", 4);
  cluster.config.mutable_shard(0)->set_address("127.0.0.1:50053");
  cluster.config.mutable_shard(1)->set_address("127.0.0.1:50054");
  for (const char* const name : {"striped on 4 servers", "striped on all workers", "ring"}) {
    CAPTURE(name);
    MustPlan(Named(Placements(cluster), name));
  }
  AdviceCluster made_up = cluster;  // by --model
  made_up.has_file = false;
  CHECK(Named(Placements(made_up), "striped on 4 servers").config.shard(2).address() ==
        "127.0.0.1:50053");
  cluster.config.mutable_update()->set_policy(Update::ASYNC);
  cluster.config.mutable_recovery()->set_worker_loss(Recovery::WAIT);
  cluster.config.mutable_recovery()->add_spare()->set_address("127.0.0.1:50055");
  cluster.config.mutable_exchange()->set_shared_memory(false);  // as SetDefaults does
  const ClusterConfig all = MustPlan(Named(Placements(cluster), "striped on all workers")).proto();
  // It was not the user who said that.
  CHECK(all.exchange().shared_memory());
}

TEST_CASE("three and more shards beside workers have one connection, where it is the fastest") {
  const auto connections = [](const AdviceCluster& cluster, const std::string& name) {
    const Candidate candidate = Named(Placements(cluster), name);
    MustPlan(candidate);
    return candidate.config.limits().connections();
  };
  const AdviceCluster cluster = ClusterOf("update { policy: SYNC }", 4);
  CHECK(connections(cluster, "striped on all workers") == 1);
  CHECK(connections(cluster, "memory-based on all workers") == 1);
  for (const char* const name : {"striped on 2 of the workers", "one master, worker 0", "ring",
                                 "striped on 4 servers", "one worker alone"}) {
    CAPTURE(name);
    CHECK(connections(cluster, name) == Limits().connections());
  }
  const AdviceCluster chosen =
      ClusterOf("update { policy: SYNC } limits { connections: 2 chunk_bytes: 65536 }");
  CHECK(connections(chosen, "striped on all workers") == 2);
  AdviceCluster fast = cluster;
  fast.config.set_worker_link_gbps(25);
  CHECK(connections(fast, "striped on all workers") == Limits().connections());
  AdviceCluster unknown = cluster;
  unknown.config.clear_worker_link_gbps();
  for (ShardAddress& shard : *unknown.config.mutable_shard()) shard.clear_link_gbps();
  CHECK(connections(unknown, "striped on all workers") == Limits().connections());
}

TEST_CASE("the number of connections that was measured decides nothing that is predicted") {
  const AdviceCluster cluster = ClusterOf("update { policy: SYNC }", 4);
  Candidate measured = Named(Placements(cluster), "striped on all workers");
  Candidate usual = measured;
  usual.has_measured_connections = false;
  usual.config.mutable_limits()->clear_connections();
  const Choice choice = Evaluate(measured, 1e-4);
  CHECK(choice.candidate.config.limits().connections() == 1);
  CHECK(choice.images_per_second == Evaluate(usual, 1e-4).images_per_second);
}

TEST_CASE("what limits a candidate is what would have to be faster") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }", 4);
  const auto bottleneck = [&](const std::string& name) {
    return Evaluate(Named(Placements(cluster), name), 1e-4).bottleneck;
  };
  CHECK(bottleneck("striped on 2 servers") == Bottleneck::kWorkerLink);
  CHECK(bottleneck("one server") == Bottleneck::kShardLink);
  // Workers 2 and 3 have the slow links, and no shard.
  AdviceCluster beside = ClusterOf("update { policy: SYNC } colocated: true", 0);
  beside.config.mutable_shard(0)->set_link_gbps(100);
  beside.config.mutable_shard(1)->set_link_gbps(100);
  beside.config.set_worker_link_gbps(0.5);
  CHECK(Evaluate(Named(Placements(beside), "striped on 2 of the workers"), 1e-4).bottleneck ==
        Bottleneck::kWorkerLink);
  // A faster link would not help a shard that is slow itself.
  for (ShardAddress& shard : *cluster.config.mutable_shard()) {
    shard.set_server_gbps(0.5);
    shard.set_link_gbps(100);
  }
  cluster.config.set_worker_link_gbps(100);
  CHECK(bottleneck("striped on 2 servers") == Bottleneck::kProcessing);
  cluster.config.set_colocated(true);
  CHECK(bottleneck("one worker alone") == Bottleneck::kProcessing);
  // Nobody but worker 0 uses the link, and pushes and pulls take turns on the shard's.
  cluster.config.set_colocated(false);
  cluster.config.set_workers(1);
  cluster.config.mutable_exchange()->set_schedule(ExchangeConfig::SEQUENTIAL);
  cluster.config.mutable_shard()->DeleteSubrange(1, 1);
  cluster.config.mutable_shard(0)->clear_server_gbps();
  cluster.config.mutable_shard(0)->set_link_gbps(1);
  CHECK(Evaluate(AsGiven(cluster), 1e-4).bottleneck == Bottleneck::kShardLink);
}

TEST_CASE("a candidate with figures of no world is refused") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }");
  for (const double dilation : {1e-300, 1e300}) {
    cluster.config.mutable_compute()->mutable_emulated()->set_time_dilation(dilation);
    const Choice alone = Evaluate(Named(Placements(cluster), "one worker alone"), 1e-4);
    CHECK_THAT(alone.refused, Catch::Contains("images/s"));
  }
}

TEST_CASE("one worker alone is the fastest one") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }");
  for (const double slowdown : {3.0, 2.0, 1.5, 4.0}) {
    cluster.config.mutable_compute()->mutable_emulated()->add_worker_slowdown(slowdown);
  }
  const Candidate alone = Placements(cluster).front();
  CHECK(alone.config.workers() == 1);
  REQUIRE(alone.config.compute().emulated().worker_slowdown_size() == 1);
  CHECK(alone.config.compute().emulated().worker_slowdown(0) == 1.5);
  CHECK(alone.hosts() == 1);
  // All compute alike, and no host is faster as a shard's than that of worker 1.
  AdviceCluster beside = ClusterOf("update { policy: SYNC } colocated: true", 0);
  beside.config.mutable_shard(0)->set_server_gbps(0.5);
  beside.config.mutable_shard(1)->set_server_gbps(5);
  const Candidate second = Placements(beside).front();
  CHECK(second.config.shard(0).address() == "ps1:1");
  CHECK(second.config.shard(0).server_gbps() == 5);
  const Candidate unprotected =
      Placements(ClusterOf("update { policy: SYNC } recovery { replicas: 1 }")).front();
  CHECK(unprotected.name == "one worker alone, without recovery");
  MustPlan(unprotected);
}

TEST_CASE("placements compute what SYNC does, whatever the config says") {
  const AdviceCluster cluster = ClusterOf(
      "update { policy: ASYNC clip_value: 2 max_norm: 5 asynchrony { rate: CONSTANT } }"
      "exchange { gradient_encoding: INT8 error_feedback: true }"
      "local { steps: 4 optimizer { kind: ADAMW } clip_global_norm: 3 }");
  const ClusterConfig config = Named(Placements(cluster), "one server").config;
  CHECK(config.update().policy() == Update::SYNC);
  CHECK_FALSE(config.update().has_asynchrony());
  CHECK(config.update().clip_value() == 2);
  CHECK(config.update().max_norm() == 5);
  CHECK(config.update().clip_global_norm() == 3);
  CHECK_FALSE(config.has_local());
  CHECK(config.optimizer().kind() == OptimizerConfig::ADAMW);
  CHECK(config.exchange().gradient_encoding() == FLOAT32);
  // As it says, it computes something else.
  const Candidate given = AsGiven(cluster);
  CHECK(given.name == "as in f");
  CHECK(given.difference == "as it says");
  CHECK(AsGiven(ClusterOf("update { policy: SYNC }")).difference.empty());
}

TEST_CASE("changes of what is computed are valid configs") {
  const AdviceCluster cluster =
      ClusterOf("update { policy: SYNC clip_global_norm: 1 } optimizer { kind: ADAM }");
  const std::vector<Candidate> changed = Changed(Named(Placements(cluster), "one server"));
  REQUIRE(changed.size() == 4);
  for (const Candidate& candidate : changed) MustPlan(candidate);
  const PlannedConfig int8 = MustPlan(Named(changed, "one server, INT8"));
  CHECK(int8.proto().exchange().gradient_encoding() == INT8);
  CHECK(int8.proto().exchange().update_encoding() == INT8);
  const PlannedConfig local = MustPlan(Named(changed, "one server, local steps, H = 64"));
  CHECK(local.proto().local().steps() == 64);
  CHECK(local.proto().local().optimizer().kind() == OptimizerConfig::ADAM);
  CHECK(local.proto().local().clip_global_norm() == 1);
  CHECK(local.proto().optimizer().kind() == OptimizerConfig::NESTEROV);
}

TEST_CASE("updates that do not wait for the slowest worker are for workers that differ") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }");
  cluster.config.mutable_compute()->mutable_emulated()->add_worker_slowdown(3);
  const std::vector<Candidate> changed = Changed(Named(Placements(cluster), "one server"));
  REQUIRE(changed.size() == 6);
  CHECK(MustPlan(Named(changed, "one server, QUORUM, 3 of 4")).proto().update().quorum() == 3);
  CHECK(MustPlan(Named(changed, "one server, ASYNC")).proto().update().policy() == Update::ASYNC);
}

TEST_CASE("a candidate is predicted with its fastest schedule, or says why it is refused") {
  const AdviceCluster cluster = ClusterOf("update { policy: SYNC }");
  const std::vector<Candidate> placements = Placements(cluster);
  const Choice alone = Evaluate(Named(placements, "one worker alone"), 1e-4);
  CHECK(alone.refused.empty());
  CHECK(alone.bottleneck == Bottleneck::kComputing);
  CHECK(alone.link_bytes == 0);
  CHECK(alone.images_per_second == Approx(32 / alone.iteration_seconds));

  const Choice ring = Evaluate(Named(placements, "ring"), 1e-4);
  CHECK(ring.images_per_second == Approx(4 * 32 / ring.iteration_seconds));
  CHECK(ring.link_bytes == Approx(1.5 * 4 * 431410).epsilon(0.01));
  CHECK(ring.bottleneck == Bottleneck::kWorkerLink);
  CHECK(Evaluate(Named(placements, "ring"), 0.1).bottleneck == Bottleneck::kLatency);

  const Choice master = Evaluate(Named(placements, "one master, worker 0"), 1e-4);
  CHECK(master.link_bytes == Approx(3 * 4 * 431410).epsilon(0.01));
  CHECK(master.bottleneck == Bottleneck::kSharedLink);
  CHECK(ring.images_per_second > master.images_per_second);

  const Choice refused = Evaluate(Named(placements, "layer-based on all workers"), 1e-4);
  CHECK_THAT(refused.refused, Catch::StartsWith("shard: "));
  CHECK(refused.images_per_second == 0);
}

TEST_CASE("a candidate is refused for what no schedule would help") {
  AdviceCluster cluster = ClusterOf(R"(
    update { policy: SYNC clip_global_norm: 1 }
    recovery { checkpoint { folder: "x" every_iterations: 5 } })");
  cluster.config.mutable_compute()->mutable_emulated()->add_worker_slowdown(3);
  const std::vector<Candidate> changed = Changed(Named(Placements(cluster), "one server"));
  const Choice refused = Evaluate(Named(changed, "one server, ASYNC"), 1e-4);
  CHECK_THAT(refused.refused, Catch::StartsWith("recovery.checkpoint.every_iterations: "));
}

TEST_CASE("a slow shard among many hosts is not left out") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC } colocated: true", 0);
  cluster.config.set_workers(32);
  cluster.config.mutable_model()->mutable_layer(1)->mutable_linear()->set_out_features(20000);
  cluster.config.clear_shard();
  for (int i = 0; i < 32; ++i) {
    ShardAddress* const shard = cluster.config.add_shard();
    shard->set_address("ps" + std::to_string(i) + ":1");
    shard->set_server_gbps(10);
  }
  const auto seconds = [&] {
    return Evaluate(Named(Placements(cluster), "memory-based on all workers"), 1e-4,
                    Schedules::kFirst)
        .iteration_seconds;
  };
  const double even = seconds();
  cluster.config.mutable_shard(31)->set_server_gbps(0.5);
  CHECK(seconds() > 1.5 * even);
}

TEST_CASE("many equal hosts with shards are predicted as a smaller cluster that takes as long") {
  AdviceCluster cluster = ClusterOf("update { policy: SYNC }");
  cluster.config.set_workers(48);
  // 33 MB, so that every shard has tens of chunks.
  cluster.config.mutable_model()->mutable_layer(1)->mutable_linear()->set_out_features(20000);
  for (const std::string name : {"striped on all workers", "memory-based on all workers"}) {
    CAPTURE(name);
    const Candidate candidate = Named(Placements(cluster), name);
    const Choice choice = Evaluate(candidate, 1e-4, Schedules::kFirst);
    CHECK(choice.images_per_second == Approx(48 * 32 / choice.iteration_seconds));
    const PlannedConfig whole = MustPlan(choice.candidate);
    ClusterRates rates = ConfiguredRates(whole.proto());
    ConvertLinks(Framing(), &rates);
    rates.latency_seconds = 1e-4;
    const double seconds =
        Predict(whole.planned_run(), rates, *PredictedLayerTimes(whole.model(), whole.proto()))
            .iteration_seconds;
    CHECK(choice.iteration_seconds == Approx(seconds).epsilon(0.1));
  }
}

}  // namespace
}  // namespace evenshard
