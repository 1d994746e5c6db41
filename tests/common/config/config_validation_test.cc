#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

// Returns the error of kConfig with more lines appended. The first of them is line 17.
std::string ErrorWithMore(const std::string& lines) { return ErrorOf(kConfig + lines); }

TEST_CASE("a text that cannot be understood is refused with line, field and what is allowed") {
  CHECK(ErrorWith("policy: SYNC", "policy: SNYC") ==
        "f:11: update.policy: is SNYC, allowed: SYNC, ASYNC, SSP, QUORUM");
  CHECK(ErrorWithMore("exchange { gradient_encoding: INT16 }") ==
        "f:17: exchange.gradient_encoding: is INT16, allowed: FLOAT32, FLOAT16, BFLOAT16, INT8, "
        "INT4, E3M0");
  CHECK(ErrorWithMore("exchange { gradient_encoding: 6 }") ==
        "f:17: exchange.gradient_encoding: is 6, allowed: FLOAT32, FLOAT16, BFLOAT16, INT8, INT4, "
        "E3M0");
  CHECK(ErrorWith("epochs: 3", "epochs: 3.5") ==
        "f:12: training.epochs: is 3.5, allowed: a whole number of 32 bits");
  CHECK(ErrorWith("epochs: 3", "epochs: -99999999999") ==
        "f:12: training.epochs: is -99999999999, allowed: a whole number of 32 bits");
  CHECK(ErrorWith("epochs: 3", "seed: -1") ==
        "f:12: training.seed: is -1, allowed: a whole number of at least 0");
  CHECK(ErrorWith("holdout: 0.2", "holdout: few") ==
        "f:15: data.holdout: is few, allowed: a number");
  CHECK(ErrorWith("holdout: 0.2", "holdout:") == "f:16: data.holdout: is }, allowed: a number");
  CHECK(ErrorWith("\"digits/images\"", "5") ==
        "f:14: data.idx.images: is 5, allowed: a text in quotes");
  CHECK(ErrorWith("update { policy: SYNC }", "update: SYNC") ==
        "f:11: update: is SYNC, allowed: fields in { }");
  CHECK(ErrorWith("out_features: 10", "bias: maybe") ==
        "f:5: model.layer[2].linear.bias: is maybe, allowed: true, false");
  CHECK(ErrorWith("workers: 2", "workers: 2 workers: 3") ==
        "f:10: workers: Non-repeated field \"workers\" is specified multiple times.");
  CHECK(ErrorWith("holdout: 0.2", "synthetic {}") ==
        "f:15: data.synthetic: Field \"synthetic\" is specified along with field \"idx\", another "
        "member of oneof \"source\".");
  CHECK(ErrorWith("epochs: 3", "epochs: 3 iterations: 5") ==
        "f:12: training.iterations: Field \"iterations\" is specified along with field "
        "\"epochs\", another member of oneof \"length\".");
  CHECK(ErrorWith("workers: 2", "workers 2") == "f:10: workers: Expected \":\", found \"2\".");
  CHECK(ErrorWith("workers: 2", "workers: 2 }") == "f:10: Expected identifier, got: }");
  CHECK(ErrorOf("model { builtin: \"vgg16 }\n") ==
        "f:1: model: String literals cannot cross line boundaries.");
  CHECK(ErrorOf("model {") == "f:1: model: Expected identifier, got: the end of the text");
}

TEST_CASE("SSP needs a staleness, and nothing else has one") {
  CHECK(
      ErrorWith("policy: SYNC", "policy: SSP") ==
      "f:11: update.staleness: is missing with policy SSP, allowed: a number of at least 0, by how "
      "many iterations a worker may be ahead of the slowest (0 is SYNC)");
  CHECK(ErrorWith("policy: SYNC", "policy: SSP staleness: -1") ==
        "f:11: update.staleness: is -1, allowed: at least 0 (0 is SYNC)");
  CHECK(ErrorWith("policy: SYNC", "policy: SYNC staleness: 2") ==
        "f:11: update.staleness: has no effect with SYNC, allowed: only with SSP");
  CHECK(ErrorWith("policy: SYNC", "policy: SSP staleness: 1 deterministic: true") ==
        "f:11: update.deterministic: is true with policy SSP, allowed: only with SYNC and QUORUM");
  CHECK(Valid(absl::StrReplaceAll(kConfig, {{"policy: SYNC",
                                             "policy: SSP staleness: 0 "
                                             "deterministic: true"}}))
            .proto()
            .update()
            .policy() == Update::SYNC);
}

TEST_CASE("QUORUM needs to know how many, and nothing else does") {
  const std::string missing =
      "f:11: update.quorum: is missing with policy QUORUM, allowed: 1 to 2, how many workers' "
      "gradients an update needs (2, all of them, is SYNC)";
  CHECK(ErrorWith("policy: SYNC", "policy: QUORUM") == missing);
  for (const std::string quorum : {"0", "3", "-1"}) {
    CHECK(ErrorWith("policy: SYNC", "policy: QUORUM quorum: " + quorum) ==
          "f:11: update.quorum: is " + quorum + ", allowed: 1 to 2, the number of workers");
  }
  CHECK(ErrorWith("policy: SYNC", "policy: QUORUM quorum: 1 grace: -0.1") ==
        "f:11: update.grace: is -0.1, allowed: a number of at least 0");
  CHECK(ErrorWith("policy: SYNC", "policy: SYNC quorum: 1") ==
        "f:11: update.quorum: has no effect with SYNC, allowed: only with QUORUM");
  CHECK(ErrorWith("policy: SYNC", "policy: ASYNC grace: 1") ==
        "f:11: update.grace: has no effect with ASYNC, allowed: only with QUORUM");
  CHECK(ErrorWith("policy: SYNC", "policy: SYNC late: CARRY") ==
        "f:11: update.late: has no effect with SYNC, allowed: only with QUORUM");
  CHECK(ErrorWith("policy: SYNC", "policy: QUORUM quorum: 1 late: KEEP") ==
        "f:11: update.late: is KEEP, allowed: DROP, CARRY");
  CHECK(ErrorWith("policy: SYNC", "policy: QUORUM quorum: 1 staleness: 1") ==
        "f:11: update.staleness: has no effect with QUORUM, allowed: only with SSP");
  const auto valid = [](const std::string& update) {
    return Valid(absl::StrReplaceAll(kConfig, {{"policy: SYNC", update}}));
  };
  CHECK(valid("policy: QUORUM quorum: 1 deterministic: true clip_global_norm: 1").has_quorum());
  Valid(kConfig,
        {"update={policy: QUORUM quorum: 1}", "partition.scheme=AUTO", "compute.profile=none"});
  const auto all = valid("policy: QUORUM quorum: 2 grace: 3 late: CARRY");
  CHECK_FALSE(all.has_quorum());
  CHECK(all.fingerprint() == valid("policy: SYNC").fingerprint());
}

TEST_CASE("all unknown fields are reported together, at any depth and in lists") {
  CHECK(ErrorOf("wrkers: 2\nupdate { polcy: SYNC }\nshard: [{ address: \"a:1\" },\n{ adress: "
                "\"b:2\" }]") ==
        "f:1: wrkers: unknown field, allowed: model, partition, shard, workers, update, "
        "optimizer, training, data, compute, limits, exchange, worker_link_gbps, "
        "recovery, local, topology, ring, colocated, security\n"
        "f:2: update.polcy: unknown field, allowed: policy, deterministic, non_finite, clip_value, "
        "clip_global_norm, staleness, asynchrony, quorum, grace, late, max_norm\n"
        "f:4: shard[1].adress: unknown field, allowed: address, link_gbps, server_gbps");
}

TEST_CASE("the first 20 unknown fields are named, and the others are counted") {
  std::string text = kConfig;
  for (int i = 1; i <= 1000; ++i) absl::StrAppend(&text, "x: ", i, "\n");
  const std::vector<std::string> lines = absl::StrSplit(ErrorOf(text), '\n');
  REQUIRE(lines.size() == 21);
  CHECK(absl::StartsWith(lines[0], "f:17: x: unknown field, allowed: model, "));
  CHECK(absl::StartsWith(lines[19], "f:36: x: unknown field, allowed: model, "));
  CHECK(lines[20] == "f:37: unknown fields from here on: 980");
  CHECK(absl::EndsWith(ErrorOf(text + "limits: few"),
                       "\nf:37: unknown fields from here on: 980\n"
                       "f:1017: limits: is few, allowed: fields in { }"));
}

TEST_CASE("everything that is missing is reported together, at the enclosing message") {
  CHECK(ErrorOf("# nothing\n\npartition { placement: GREEDY }\ncompute {}") ==
        "f:3: partition.scheme: is missing, allowed: LAYER_BASED, MEMORY_BASED, AUTO, STRIPED\n"
        "f:1: shard: is missing, allowed: at least one shard { address: \"host:port\" }\n"
        "f:1: update.policy: is missing, allowed: SYNC, ASYNC, SSP, QUORUM\n"
        "f:1: training: has neither epochs nor iterations, allowed: one of the two\n"
        "f:1: data: its source is missing, allowed: idx, cifar10, image_folder or synthetic; none "
        "with compute.backend EMULATED\n"
        "f:1: model: is missing, allowed: builtin, input and layer, or from_workers");
  CHECK(ErrorOf(" \n") ==
        "f:1: is empty, allowed: a ClusterConfig as docs/configuration.md describes it");
}

TEST_CASE("a value out of its range is refused with its place, value and range") {
  struct Case {
    std::string lines;  // appended to kConfig from line 17 on
    std::string error;
  };
  const std::vector<Case> cases = {
      {"optimizer { learning_rate: 0 }",
       "optimizer.learning_rate: is 0, allowed: a number above 0"},
      {"optimizer { learning_rate: nan }",
       "optimizer.learning_rate: is nan, allowed: a number above 0"},
      {"optimizer { learning_rate: 1e99 }",
       "optimizer.learning_rate: is inf, allowed: a number above 0"},
      {"optimizer { weight_decay: -1 }",
       "optimizer.weight_decay: is -1, allowed: a number of at least 0"},
      {"optimizer { kind: MOMENTUM momentum: 1 }",
       "optimizer.momentum: is 1, allowed: at least 0 and below 1"},
      {"optimizer { kind: ADAM beta1: nan }",
       "optimizer.beta1: is nan, allowed: at least 0 and below 1"},
      {"optimizer { kind: ADAM beta2: -0.5 }",
       "optimizer.beta2: is -0.5, allowed: at least 0 and below 1"},
      {"optimizer { kind: RMSPROP beta2: 1 }",
       "optimizer.beta2: is 1, allowed: at least 0 and below 1"},
      {"optimizer { kind: LION beta1: 1 }",
       "optimizer.beta1: is 1, allowed: at least 0 and below 1"},
      {"optimizer { kind: ADAGRAD epsilon: 0 }",
       "optimizer.epsilon: is 0, allowed: a number above 0"},
      {"optimizer { schedule { warmup_iterations: -1 } }",
       "optimizer.schedule.warmup_iterations: is -1, allowed: at least 0"},
      {"optimizer { schedule { kind: STEP } }",
       "optimizer.schedule.step_iterations: is 0, allowed: at least 1"},
      {"optimizer { schedule { kind: STEP step_iterations: 9 gamma: 0 } }",
       "optimizer.schedule.gamma: is 0, allowed: a number above 0"},
      {"optimizer { schedule { kind: COSINE } }",
       "optimizer.schedule.total_iterations: is 0, allowed: at least 1"},
      {"optimizer { schedule { kind: COSINE total_iterations: 9 final_factor: 1.5 } }",
       "optimizer.schedule.final_factor: is 1.5, allowed: 0 to 1"},
      {"compute { threads: -1 }", "compute.threads: is -1, allowed: 0 to 1024"},
      {"limits { chunk_bytes: 100 }",
       "limits.chunk_bytes: is 100, allowed: a multiple of 64 from 64 to 67108864"},
      {"limits { chunk_bytes: 0 }",
       "limits.chunk_bytes: is 0, allowed: a multiple of 64 from 64 to 67108864"},
      {"limits { chunk_bytes: 67108928 held_bytes: 67108928 }",
       "limits.chunk_bytes: is 67108928, allowed: a multiple of 64 from 64 to 67108864"},
      {"limits { held_bytes: 1000 }",
       "limits.held_bytes: is 1000, allowed: at least limits.chunk_bytes, 16384"},
      {"limits { window_bytes: 65535 }",
       "limits.window_bytes: is 65535, allowed: 65536 to 1073741824"},
      {"limits { lead_bytes: -1 }", "limits.lead_bytes: is -1, allowed: at least 0"},
      {"limits { connections: 0 }", "limits.connections: is 0, allowed: 1 to 64"},
      {"limits { connections: 65 }", "limits.connections: is 65, allowed: 1 to 64"},
      {"limits { strangers { connections: 0 } }",
       "limits.strangers.connections: is 0, allowed: 1 to 1000000"},
      {"limits { strangers { handshakes: 0 } }",
       "limits.strangers.handshakes: is 0, allowed: 1 to 1000000"},
      {"limits { strangers { handshakes_per_second: -1 } }",
       "limits.strangers.handshakes_per_second: is -1, allowed: 1 to 1000000"},
      {"limits { strangers { handshake_seconds: 0 } }",
       "limits.strangers.handshake_seconds: is 0, allowed: above 0 and at most 604800 seconds"},
      {"limits { strangers { streams: 7 } }", "limits.strangers.streams: is 7, allowed: 8 to 1000"},
      {"limits { strangers { header_bytes: 1023 } }",
       "limits.strangers.header_bytes: is 1023, allowed: 1024 to 1048576"},
      {"limits { strangers { asking_burst_bytes: 1000 } }",
       "limits.strangers.asking_burst_bytes: is 1000, allowed: 16384 to 1073741824"},
      {"limits { strangers { asking_bytes_per_second: 0 } }",
       "limits.strangers.asking_bytes_per_second: is 0, allowed: 1024 to 1073741824"},
      {"limits { strangers { shun_seconds: 0 } }",
       "limits.strangers.shun_seconds: is 0, allowed: above 0 and at most 604800 seconds"},
      {"limits { strangers { readers: 0 } }",
       "limits.strangers.readers: is 0, allowed: 1 to 1000000"},
      {"limits { strangers { pulls: 0 } }", "limits.strangers.pulls: is 0, allowed: 1 to 1000000"},
      {"limits { strangers { snapshots: 0 } }",
       "limits.strangers.snapshots: is 0, allowed: 1 to 1000000"},
      {"limits { strangers { ping_seconds: 2 } }",
       "limits.strangers.ping_seconds: is 2, allowed: above 0 and at most 1"},
      {"limits { strangers { ping_seconds: nan } }",
       "limits.strangers.ping_seconds: is nan, allowed: above 0 and at most 1"},
      {"limits { strangers { log_lines: -1 } }",
       "limits.strangers.log_lines: is -1, allowed: 0 to 1000000"},
      {"limits { startup_seconds: 0 }",
       "limits.startup_seconds: is 0, allowed: above 0 and at most 604800 seconds"},
      {"limits { exchange_seconds: nan }",
       "limits.exchange_seconds: is nan, allowed: above 0 and at most 604800 seconds"},
      {"limits { shutdown_seconds: inf }",
       "limits.shutdown_seconds: is inf, allowed: above 0 and at most 604800 seconds"},
  };
  for (const Case& c : cases) {
    INFO(c.lines);
    CHECK(ErrorWithMore(c.lines) == "f:17: " + c.error);
  }
  CHECK(ErrorWith("workers: 2", "workers: 0") == "f:10: workers: is 0, allowed: 1 to 1024");
  CHECK(ErrorWith("workers: 2", "workers: 1025") == "f:10: workers: is 1025, allowed: 1 to 1024");
  CHECK(ErrorWith("policy: SYNC", "policy: SYNC clip_value: -1") ==
        "f:11: update.clip_value: is -1, allowed: a number of at least 0");
  CHECK(ErrorWith("policy: SYNC", "policy: SYNC clip_global_norm: inf") ==
        "f:11: update.clip_global_norm: is inf, allowed: a number of at least 0");
  for (const std::string max_norm : {"0.5", "-1", "inf", "nan"}) {
    CHECK(ErrorWith("policy: SYNC", "policy: SYNC max_norm: " + max_norm) ==
          "f:11: update.max_norm: is " + max_norm +
              ", allowed: 0 (no bound), or a number of at least 1, how many times the median of "
              "the workers' norms a gradient may have");
  }
  CHECK(ErrorWith("batch_size: 4", "batch_size: 0") ==
        "f:12: training.batch_size: is 0, allowed: 1 to 65536");
  CHECK(ErrorWith("epochs: 3", "epochs: 0") == "f:12: training.epochs: is 0, allowed: at least 1");
  CHECK(ErrorWith("epochs: 3", "iterations: 0") ==
        "f:12: training.iterations: is 0, allowed: at least 1");
  CHECK(ErrorWith("epochs: 3", "epochs: 3 evaluate_every_epochs: -1") ==
        "f:12: training.evaluate_every_epochs: is -1, allowed: at least 0");
  CHECK(ErrorWith("epochs: 3", "epochs: 3 evaluate_every_iterations: -1") ==
        "f:12: training.evaluate_every_iterations: is -1, allowed: at least 0");
  CHECK(ErrorWith("epochs: 3", "epochs: 3 required_accuracy: 1") ==
        "f:12: training.required_accuracy: is 1, allowed: at least 0 and below 1");
  CHECK(ErrorWith("holdout: 0.2", "holdout: 1") ==
        "f:15: data.holdout: is 1, allowed: at least 0 and below 1");
  CHECK(ErrorWith("holdout: 0.2", "augment { crop_padding: 8 }") ==
        "f:15: data.augment.crop_padding: is 8, allowed: below the 8 pixels of the model's input");
  CHECK(ErrorWith("holdout: 0.2", "augment { crop_padding: -1 }") ==
        "f:15: data.augment.crop_padding: is -1, allowed: at least 0");
  CHECK(ErrorWith("holdout: 0.2", "threads: -1") == "f:15: data.threads: is -1, allowed: 0 to 256");
  CHECK(ErrorWith("holdout: 0.2", "threads: 257") ==
        "f:15: data.threads: is 257, allowed: 0 to 256");
  CHECK(ErrorWith("holdout: 0.2", "threads: 256") == "no error");
}

TEST_CASE("shard addresses are checked one by one and against each other") {
  const auto error_of = [](const std::string& address) {
    return ErrorWith("localhost:50052", address);
  };
  for (const std::string valid :
       {"10.0.0.1:65535", "[::1]:50051", "unix:/tmp/shard1", "Some-host.example:1"}) {
    INFO(valid);
    CHECK(error_of(valid) == "no error");
  }
  for (const std::string wrong :
       {"", "localhost", "localhost:", ":50051", "localhost:65536", "localhost:-1", "localhost:+5",
        "localhost: 5", "::1:50051", "[::1]", "[::g]:1", "unix:", "dns:///host:1", "a b:1"}) {
    INFO(wrong);
    CHECK(error_of(wrong) ==
          absl::StrCat("f:9: shard[1].address: is \"", wrong,
                       "\", allowed: host:port or [IPv6]:port with a port of 0 to 65535, or "
                       "unix:PATH of at most 107 bytes"));
  }
  CHECK(absl::StrContains(error_of("unix:" + std::string(108, 'x')), "at most 107 bytes"));
  for (const std::string same : {"localhost:50051", "LOCALHOST:050051"}) {
    CHECK(error_of(same) == absl::StrCat("f:9: shard[1].address: is \"", same,
                                         "\", the same as shard[0].address, allowed: a different "
                                         "address for each shard"));
  }
  CHECK(
      absl::StrContains(ErrorOf(kConfig, {"shard=[{address: '[::1]:5'}, {address: '[0:0::1]:5'}]"}),
                        "a different address for each shard"));
  // Port 0 stands for another port each time.
  const std::string any_port =
      absl::StrReplaceAll(kConfig, {{"localhost:50051", "h:0"}, {"localhost:50052", "h:0"}});
  CHECK(Valid(any_port).address(1) == "h:0");
}

TEST_CASE("with MEAN the workers have the rule, and the shards no parameters") {
  const std::string config =
      "model { from_workers {} }\npartition { scheme: STRIPED }\nworkers: 2\n"
      "shard { address: 'h:1' }\nupdate { policy: SYNC }\noptimizer { kind: MEAN }\n";
  CHECK(Valid(config, {"optimizer.stepped_by=torch.optim.Adam"}).workers() == 2);
  CHECK(ErrorOf(config, {"update.policy=ASYNC"}) ==
        "--set update.policy=ASYNC: update.policy: is ASYNC, allowed: SYNC with optimizer.kind "
        "MEAN, the "
        "mean over all workers");
  CHECK(ErrorOf(config, {"update.non_finite=SKIP"}) ==
        "--set update.non_finite=SKIP: update.non_finite: is given, and optimizer.kind is MEAN, "
        "where "
        "what is not finite reaches all workers; allowed: without it");
  CHECK(absl::StrContains(
      ErrorOf(config, {"recovery.checkpoint={folder: 'c' every_seconds: 5}"}),
      "recovery.checkpoint: is given, and optimizer.kind is MEAN, where the shards have no "
      "parameters that could be saved; allowed: without it"));
  CHECK(ErrorOf(config, {"optimizer.learning_rate=1"}) ==
        "--set optimizer.learning_rate=1: optimizer.learning_rate: is given, and optimizer.kind is "
        "MEAN, where the workers' own optimizers have the rule; allowed: without it");
  CHECK(absl::StrContains(
      ErrorWithMore("optimizer { kind: MEAN }"),
      "optimizer.kind: is MEAN, allowed: SGD, MOMENTUM, NESTEROV, ADAM, "
      "ADAGRAD, ADAMW, RMSPROP, RMSPROP_MOMENTUM, ADAM_AMSGRAD, "
      "ADAMW_AMSGRAD, LION, DELAYED_NESTEROV; MEAN only with model.from_workers"));
  CHECK(ErrorWithMore("optimizer { stepped_by: 'x' }") ==
        "f:17: optimizer.stepped_by: has no effect with SGD, allowed: only with MEAN");
}

TEST_CASE("fields without effect and combinations that cannot work are refused") {
  CHECK(ErrorWithMore("optimizer { momentum: 0.9 }") ==
        "f:17: optimizer.momentum: has no effect with SGD, allowed: only with MOMENTUM, NESTEROV, "
        "RMSPROP_MOMENTUM, DELAYED_NESTEROV");
  CHECK(ErrorWithMore("optimizer { kind: ADAGRAD\n beta1: 0.9 beta2: 0.9 }") ==
        "f:18: optimizer.beta1: has no effect with ADAGRAD, allowed: only with ADAM, ADAMW, "
        "ADAM_AMSGRAD, ADAMW_AMSGRAD, LION\n"
        "f:18: optimizer.beta2: has no effect with ADAGRAD, allowed: only with ADAM, ADAMW, "
        "RMSPROP, RMSPROP_MOMENTUM, ADAM_AMSGRAD, ADAMW_AMSGRAD, LION");
  CHECK(ErrorWithMore("optimizer { epsilon: 1 }") ==
        "f:17: optimizer.epsilon: has no effect with SGD, allowed: only with ADAM, ADAGRAD, ADAMW, "
        "RMSPROP, RMSPROP_MOMENTUM, ADAM_AMSGRAD, ADAMW_AMSGRAD");
  CHECK(ErrorWithMore("optimizer { kind: RMSPROP\n momentum: 0.9 }") ==
        "f:18: optimizer.momentum: has no effect with RMSPROP, allowed: only with MOMENTUM, "
        "NESTEROV, RMSPROP_MOMENTUM, DELAYED_NESTEROV");
  CHECK(ErrorWithMore("optimizer { kind: LION\n epsilon: 1 }") ==
        "f:18: optimizer.epsilon: has no effect with LION, allowed: only with ADAM, ADAGRAD, "
        "ADAMW, RMSPROP, RMSPROP_MOMENTUM, ADAM_AMSGRAD, ADAMW_AMSGRAD");
  CHECK(ErrorWithMore("optimizer { schedule { gamma: 1 step_iterations: 1 } }") ==
        "f:17: optimizer.schedule.step_iterations: has no effect with CONSTANT, allowed: only "
        "with STEP\n"
        "f:17: optimizer.schedule.gamma: has no effect with CONSTANT, allowed: only with STEP");
  CHECK(
      ErrorWithMore("optimizer { schedule { kind: STEP step_iterations: 1 total_iterations: 9 "
                    "final_factor: 0 } }") ==
      "f:17: optimizer.schedule.total_iterations: has no effect with STEP, allowed: only with "
      "COSINE\n"
      "f:17: optimizer.schedule.final_factor: has no effect with STEP, allowed: only with COSINE");
  CHECK(
      ErrorWith("policy: SYNC", "policy: ASYNC deterministic: true") ==
      "f:11: update.deterministic: is true with policy ASYNC, allowed: only with SYNC and QUORUM");
  CHECK(ErrorWithMore("compute { backend: EMULATED }") ==
        "f:12: training.epochs: is set with backend EMULATED, which reads no data, allowed: "
        "training.iterations in its place");
}

TEST_CASE("errors of the model and of the plan have a place in the config") {
  CHECK(absl::StartsWith(ErrorWith("out_features: 32", "out_features: 0"),
                         "f:3: model.layer[0]: \"fc1\": linear.out_features"));
  CHECK(absl::StartsWith(ErrorWith("height: 8", "height: 0"), "f:2: model.input.height: "));
  CHECK(absl::StartsWith(ErrorOfOverride("model={builtin: 'vgg17'}"), "model.builtin: "));
  CHECK(absl::StartsWith(
      ErrorOf(kConfig, {"shard=[{address: 'a:1'}, {address: 'a:2'}, {address: 'a:3'}]",
                        "partition.scheme=LAYER_BASED"}),
      "--set shard=[{address: 'a:1'}, {address: 'a:2'}, {address: 'a:3'}]: shard: "));
  const std::string three =
      absl::StrReplaceAll(kConfig, {{"workers: 2", "shard { address: \"localhost:50053\" }"}});
  CHECK(absl::StartsWith(ErrorOf(three, {"partition.scheme=LAYER_BASED"}),
                         "--set partition.scheme=LAYER_BASED: shard: "));
  CHECK(absl::StartsWith(ErrorOf(absl::StrReplaceAll(three, {{"MEMORY_BASED", "LAYER_BASED"}})),
                         "f:8: shard: "));
}

TEST_CASE("rates are numbers above 0, those of shards for all of them or for none") {
  CHECK(ErrorOfOverride("shard[1].link_gbps=-1") ==
        "shard[1].link_gbps: is -1, allowed: a number above 0");
  CHECK(ErrorOfOverride("shard[1].link_gbps=0") ==
        "shard[1].link_gbps: is 0, allowed: a number above 0");
  CHECK(ErrorOf(kConfig,
                {"shard[0].link_gbps=10", "shard[1].link_gbps=10", "shard[0].server_gbps=0"}) ==
        "--set shard[0].server_gbps=0: shard[0].server_gbps: is 0, allowed: a number above 0");
  CHECK(ErrorOfOverride("worker_link_gbps=0") ==
        "worker_link_gbps: is 0, allowed: a number above 0");
  CHECK(ErrorOfOverride("worker_link_gbps=25") == "no error");
  CHECK(ErrorOf(kConfig, {"shard[0].link_gbps=10", "shard[1].server_gbps=inf"}) ==
        "--set shard[1].server_gbps=inf: shard[1].server_gbps: is inf, allowed: a number "
        "above 0");
  CHECK(ErrorOf(kConfig, {"shard[0].link_gbps=nan", "shard[1].server_gbps=1"}) ==
        "--set shard[0].link_gbps=nan: shard[0].link_gbps: is nan, allowed: a number above 0\n"
        "--set shard[1].server_gbps=1: shard[0]: has no rate and shard[1] has one, allowed: "
        "link_gbps or server_gbps for every shard, or for none");
  CHECK(ErrorOfOverride("shard[1].link_gbps=10") ==
        "shard[0]: has no rate and shard[1] has one, allowed: link_gbps or server_gbps for every "
        "shard, or for none");
}

TEST_CASE("each shard on a worker's host needs a worker of its own") {
  CHECK(ErrorOfOverride("colocated=true") == "no error");
  CHECK(ErrorOf(kConfig, {"colocated=true", "workers=1"}) ==
        "--set colocated=true: colocated: is true with 2 shards and 1 workers, allowed: at most as "
        "many "
        "shards as workers, since shard I is on the host of worker I");
}

TEST_CASE("AUTO needs to know a device, and no backend has two") {
  const std::string missing =
      "is missing with partition.scheme AUTO, which goes by the times of a device's layers, and "
      "those of the backend CPU are not known, allowed: \"none\", \"rtx_2080_ti\", "
      "\"cpu_epyc_2_threads\"";
  CHECK(ErrorOfOverride("partition.scheme=AUTO") == "compute.profile: " + missing);
  CHECK(ErrorOf(kConfig, {"compute.backend=CUDA", "partition.scheme=AUTO"}) ==
        "--set partition.scheme=AUTO: compute.profile: " +
            absl::StrReplaceAll(missing, {{"CPU", "CUDA"}}));
  Valid(kConfig, {"partition.scheme=AUTO", "compute.profile=none"});
  Valid(kConfig, {"partition.scheme=AUTO", "compute.backend=EMULATED", "training.iterations=5"});
  // Without AUTO a profile is allowed, and need not be given.
  Valid(kConfig, {"compute.profile=rtx_2080_ti"});
  CHECK(ErrorOfOverride("compute.profile=rtx_9") ==
        "compute.profile: is \"rtx_9\", allowed: \"none\", \"rtx_2080_ti\", "
        "\"cpu_epyc_2_threads\"");
  CHECK(
      ErrorOf(kConfig, {"compute={backend: EMULATED profile: 'none'}", "training.iterations=5"}) ==
      "--set compute={backend: EMULATED profile: 'none'}: compute.profile: has no effect with "
      "EMULATED, which has compute.emulated.device, allowed: only with CPU and CUDA");
}

TEST_CASE("under AUTO other errors are reported once, and there is no plan to add its own") {
  const Overrides automatic = {"partition.scheme=AUTO", "compute.profile=none"};
  const auto error = [&](const std::string& override) {
    Overrides overrides = automatic;
    overrides.push_back(override);
    return ErrorOf(kConfig, overrides);
  };
  for (const std::string wrong :
       {"workers=0", "training.batch_size=0", "limits.chunk_bytes=100", "limits.connections=0",
        "worker_link_gbps=0", "shard[1].link_gbps=10", "shard=[]", "compute.profile=x",
        "model.layer[0].linear.out_features=0", "exchange.schedule=NEVER"}) {
    CAPTURE(wrong);
    const std::string message = error(wrong);
    CHECK(message != "no error");
    CHECK(!absl::StrContains(message, "\n"));
  }
}

}  // namespace
}  // namespace evenshard
