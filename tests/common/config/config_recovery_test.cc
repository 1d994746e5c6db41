// Tests the parts of a config that concern recovery, and what a run begins from.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

constexpr char kCheckpoint[] = "recovery.checkpoint={folder: 'c' every_iterations: 10}";

// Returns the error of an override after `before`, without its prefix.
std::string ErrorAfter(const Overrides& before, const std::string& override) {
  Overrides overrides = before;
  overrides.push_back(override);
  std::string error = ErrorOf(kConfig, overrides);
  const std::string prefix = absl::StrCat("--set ", override, ": ");
  return absl::StartsWith(error, prefix) ? error.substr(prefix.size()) : error;
}

TEST_CASE("a config without recovery has one process for each shard") {
  const PlannedConfig config = Valid();
  CHECK_FALSE(config.has_recovery());
  CHECK(config.processes() == 2);
  CHECK(config.process_address(1) == config.address(1));
}

TEST_CASE("spares are processes after those of the shards") {
  const PlannedConfig config = Valid(
      kConfig,
      {"recovery={replicas: 1 worker_loss: CONTINUE min_workers: 2 spare {address: 'spare:1'}}"});
  CHECK(config.has_recovery());
  CHECK(config.shards() == 2);
  CHECK(config.processes() == 3);
  CHECK(config.process_address(0) == "localhost:50051");
  CHECK(config.process_address(2) == "spare:1");
  // One shard is enough for a copy if there is a spare.
  Valid(kConfig, {"shard=[{address: 'a:1'}]", "recovery={replicas: 1 spare {address: 'b:1'}}"});
}

TEST_CASE("a checkpoint has a folder and one interval, which fits the policy") {
  Valid(kConfig, {kCheckpoint});
  Valid(kConfig, {"recovery.checkpoint={folder: 'c' every_seconds: 0.5 keep: 2}"});
  Valid(kConfig, {"recovery.checkpoint={folder: 'c' every_seconds: 60}", "update.policy=ASYNC"});
  CHECK(ErrorOfOverride("recovery.checkpoint={every_iterations: 1}") ==
        "recovery.checkpoint.folder: is missing, allowed: a path, relative to this file, that "
        "every ps can reach");
  CHECK(ErrorOfOverride("recovery.checkpoint={folder: 'c'}") ==
        "recovery.checkpoint: has neither every_iterations nor every_seconds, allowed: one of the "
        "two");
  CHECK(ErrorAfter({kCheckpoint}, "recovery.checkpoint.every_iterations=0") ==
        "recovery.checkpoint.every_iterations: is 0, allowed: at least 1");
  for (const std::string wrong : {"0", "-1", "nan", "inf", "604801"}) {
    CHECK(ErrorAfter({kCheckpoint}, "recovery.checkpoint.every_seconds=" + wrong) ==
          absl::StrCat("recovery.checkpoint.every_seconds: is ", wrong,
                       ", allowed: above 0 and at most 604800 seconds"));
  }
  CHECK(ErrorAfter({"update.policy=ASYNC"}, kCheckpoint) ==
        "recovery.checkpoint.every_iterations: is set with update.policy ASYNC, under which the "
        "run as a whole has no iterations, allowed: recovery.checkpoint.every_seconds in its "
        "place");
  CHECK(ErrorAfter({kCheckpoint}, "recovery.checkpoint.keep=1") ==
        "recovery.checkpoint.keep: is 1, allowed: at least 2, since a run may be going back to the "
        "one before the newest");
}

TEST_CASE("the buffer of checkpoints holds a chunk with the optimizer's state") {
  const Overrides adam = {kCheckpoint, "optimizer.kind=ADAM", "limits.chunk_bytes=1024"};
  Overrides enough = adam;
  enough.push_back("recovery.checkpoint.buffer_bytes=3072");
  Valid(kConfig, enough);
  CHECK(ErrorAfter(adam, "recovery.checkpoint.buffer_bytes=3071") ==
        "recovery.checkpoint.buffer_bytes: is 3071, allowed: at least a chunk with its optimizer "
        "state, 3072");
}

TEST_CASE("a message that fills a replica holds a chunk with the optimizer's state") {
  const Overrides each = {"recovery={replicas: 1}", "update={policy: ASYNC}",
                          "optimizer={kind: MOMENTUM momentum: 0.9}",
                          "limits={chunk_bytes: 67108864 held_bytes: 67108864}"};
  Overrides few = each;
  few.push_back("workers=2");
  Valid(kConfig, few);
  CHECK(
      ErrorAfter(each, "workers=64") ==
      "--set limits={chunk_bytes: 67108864 held_bytes: 67108864}: limits.chunk_bytes: is 67108864, "
      "allowed: at most 33022078 with recovery.replicas: a chunk has 65 arrays with its optimizer "
      "state");
}

TEST_CASE("there are as many replicas as there are processes for them") {
  CHECK(ErrorOfOverride("recovery.replicas=2") == "recovery.replicas: is 2, allowed: 0 to 1");
  CHECK(ErrorOfOverride("recovery.replicas=-1") == "recovery.replicas: is -1, allowed: 0 to 1");
  CHECK(ErrorAfter({"shard=[{address: 'a:1'}]"}, "recovery.replicas=1") ==
        "recovery.replicas: is 1, but there is only one ps, which cannot hold its own replica, "
        "allowed: 0, or another shard or recovery.spare");
}

TEST_CASE("min_workers goes with CONTINUE, and is at most the number of workers") {
  Valid(kConfig, {"recovery.worker_loss=WAIT"});
  CHECK(ErrorOfOverride("recovery={worker_loss: CONTINUE min_workers: 3}") ==
        "recovery.min_workers: is 3, allowed: 1 to the number of workers, 2");
  CHECK(ErrorOfOverride("recovery={worker_loss: CONTINUE min_workers: 0}") ==
        "recovery.min_workers: is 0, allowed: 1 to the number of workers, 2");
  CHECK(ErrorOfOverride("recovery={worker_loss: WAIT min_workers: 1}") ==
        "recovery.min_workers: has no effect with WAIT, allowed: only with CONTINUE");
}

TEST_CASE("spares have addresses of their own, and no rates") {
  CHECK(ErrorOfOverride("recovery.spare=[{address: 'localhost:50051'}]") ==
        "recovery.spare[0].address: is \"localhost:50051\", the same as shard[0].address, allowed: "
        "a different address for each shard and spare");
  CHECK(ErrorOfOverride("recovery.spare=[{address: 'a:1'}, {address: 'a:1'}]") ==
        "recovery.spare[1].address: is \"a:1\", the same as recovery.spare[0].address, allowed: a "
        "different address for each shard and spare");
  CHECK(absl::StartsWith(ErrorOfOverride("recovery.spare=[{}]"),
                         "recovery.spare[0].address: is \"\", allowed: host:port or "));
  CHECK(ErrorOfOverride("recovery.spare=[{address: 'a:1' link_gbps: 10}]") ==
        "recovery.spare[0]: has a rate, which would have no effect, allowed: only address");
  Valid(kConfig, {"recovery.spare=[{address: 'a:0'}, {address: 'a:0'}]"});
}

TEST_CASE("times of recovery have ranges") {
  CHECK(ErrorOfOverride("recovery.silence_seconds=0") ==
        "recovery.silence_seconds: is 0, allowed: above 0 and at most 604800 seconds");
  Valid(kConfig, {"limits.reconnect_seconds=0"});
  for (const std::string wrong : {"-1", "nan", "604801"}) {
    CHECK(ErrorOfOverride("limits.reconnect_seconds=" + wrong) ==
          absl::StrCat("limits.reconnect_seconds: is ", wrong, ", allowed: 0 to 604800 seconds"));
  }
}

TEST_CASE("etcd has endpoints and a name for the run, and excludes shared memory") {
  const PlannedConfig config =
      Valid(kConfig, {"recovery.etcd={endpoint: ['a:2379', '[::1]:2379']}"});
  CHECK_FALSE(config.proto().exchange().shared_memory());
  CHECK(Valid(kConfig, {"recovery={}"}).proto().exchange().shared_memory());
  CHECK(Valid(kConfig, {"update.policy=ASYNC"}).proto().exchange().shared_memory());
  CHECK_FALSE(
      Valid(kConfig, {"recovery={}", "update.policy=ASYNC"}).proto().exchange().shared_memory());
  CHECK(ErrorOfOverride("recovery.etcd={}") ==
        "recovery.etcd.endpoint: is missing, allowed: at least one \"host:port\"");
  for (const std::string wrong : {"a", "a:0", "unix:/a", ""}) {
    CHECK(ErrorOfOverride("recovery.etcd={endpoint: '" + wrong + "'}") ==
          absl::StrCat("recovery.etcd.endpoint[0]: is \"", wrong,
                       "\", allowed: host:port or [IPv6]:port with a port of 1 to 65535"));
  }
  for (const std::string wrong : {"", "a/b", "a b"}) {
    CHECK(ErrorOfOverride("recovery.etcd={endpoint: 'a:1' run: '" + wrong + "'}") ==
          absl::StrCat("recovery.etcd.run: is \"", wrong,
                       "\", allowed: 1 to 100 letters, digits, '-', '_' and '.'"));
  }
  CHECK(ErrorAfter({"recovery.etcd={endpoint: 'a:1'}"}, "exchange.shared_memory=true") ==
        "exchange.shared_memory: is true with recovery.etcd, where a shard that lost its role "
        "unawares could still write to its workers' memory, allowed: false, the default with it");
}

TEST_CASE("all problems of recovery are reported together") {
  const std::string error =
      ErrorOf(kConfig, {"recovery={checkpoint {} replicas: 3 silence_seconds: -1 etcd {}}"});
  for (const std::string field : {"checkpoint.folder: ", "checkpoint: ", "replicas: ",
                                  "silence_seconds: ", "etcd.endpoint: "}) {
    INFO(field);
    CHECK(absl::StrContains(error, "recovery." + field));
  }
}

TEST_CASE("processes must agree on what a run survives, but not on paths and addresses") {
  const auto fingerprint = [](const std::string& recovery) {
    return Valid(kConfig, {"recovery={" + recovery + "}"}).fingerprint();
  };
  const std::string base =
      "checkpoint {folder: 'c' every_iterations: 10} spare {address: 'a:1'} "
      "etcd {endpoint: 'e:1'} ";
  for (const std::string other :
       {"checkpoint {folder: '/d' every_iterations: 10} spare {address: 'a:1'} "
        "etcd {endpoint: 'e:1'}",
        "checkpoint {folder: 'c' every_iterations: 10 buffer_bytes: 1000000 keep: 3} "
        "spare {address: 'b:1'} etcd {endpoint: ['f:1', 'g:1'] run: 'evenshard'}"}) {
    INFO(other);
    CHECK(fingerprint(other) == fingerprint(base));
  }
  for (const std::string more :
       {"replicas: 1", "worker_loss: WAIT", "worker_loss: CONTINUE min_workers: 2",
        "silence_seconds: 6", "spare {address: 'b:1'}"}) {
    INFO(more);
    CHECK(fingerprint(base + more) != fingerprint(base));
  }
  CHECK(fingerprint("worker_loss: CONTINUE min_workers: 2") !=
        fingerprint("worker_loss: CONTINUE"));
  const std::string checkpoint = "checkpoint {folder: 'c' every_iterations: 10}";
  CHECK(fingerprint("checkpoint {folder: 'c' every_iterations: 11}") != fingerprint(checkpoint));
  CHECK(fingerprint("checkpoint {folder: 'c' every_seconds: 10}") != fingerprint(checkpoint));
  CHECK(fingerprint("checkpoint {folder: 'c' every_iterations: 10 keep: 4}") !=
        fingerprint(checkpoint));
  CHECK(fingerprint("etcd {endpoint: 'e:1'}") != fingerprint(""));
  CHECK(fingerprint("etcd {endpoint: 'e:1' run: 'x'}") != fingerprint("etcd {endpoint: 'e:1'}"));
  CHECK(Valid(kConfig, {"limits.reconnect_seconds=1"}).fingerprint() == Valid().fingerprint());
}

TEST_CASE("the contract says whether there are initial parameters, and not where") {
  const PlannedConfig here = Valid(kConfig, {"model.initial_parameters=here.safetensors"});
  const PlannedConfig there = Valid(kConfig, {"model.initial_parameters=/there"});
  CHECK(here.fingerprint() == there.fingerprint());
  CHECK(here.fingerprint() != Valid().fingerprint());
  CHECK(ErrorOfOverride("model.initial_parameters=''") ==
        "model.initial_parameters: is missing, allowed: a path, relative to this file");
  for (const std::string flag : {"allow_missing_parameters", "allow_unused_parameters"}) {
    CHECK(ErrorOfOverride("model." + flag + "=true") ==
          absl::StrCat("model.", flag,
                       ": has no effect with the model's own initial values, allowed: only with "
                       "model.initial_parameters"));
    Valid(kConfig, {"model.initial_parameters=x", "model." + flag + "=true"});
  }
}

TEST_CASE("initial values and initial parameters go together where the file may lack tensors") {
  CHECK(ErrorOf(kConfig, {"model.initial_parameters=x", "model.initial_values=HE_UNIFORM"}) ==
        "--set model.initial_values=HE_UNIFORM: model.initial_values: has no effect with "
        "model.initial_parameters, allowed: only with model.allow_missing_parameters");
  Valid(kConfig, {"model.initial_parameters=x", "model.initial_values=HE_UNIFORM",
                  "model.allow_missing_parameters=true"});
}

TEST_CASE("the folder of checkpoints and the initial parameters are relative to the config file") {
  const auto config = PlannedConfig::Parse(kConfig, "/runs/f.textproto",
                                           {kCheckpoint, "model.initial_parameters=x.safetensors"});
  REQUIRE(config.ok());
  CHECK(config->proto().recovery().checkpoint().folder() == "/runs/c");
  CHECK(config->proto().model().initial_parameters() == "/runs/x.safetensors");
}

}  // namespace
}  // namespace evenshard
