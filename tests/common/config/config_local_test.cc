// Tests the part of a config that concerns local steps.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

constexpr char kLocal[] = "local={steps: 8 optimizer {kind: ADAMW}}";

// Returns the error of an override of a config with local steps, without its prefix.
std::string ErrorOfLocal(const std::string& override, const Overrides& before = {}) {
  Overrides overrides = {kLocal};
  overrides.insert(overrides.end(), before.begin(), before.end());
  overrides.push_back(override);
  std::string error = ErrorOf(kConfig, overrides);
  const std::string prefix = absl::StrCat("--set ", override, ": ");
  return absl::StartsWith(error, prefix) ? error.substr(prefix.size()) : error;
}

TEST_CASE("with local steps the shards have an outer optimizer") {
  CHECK(Valid(kConfig, {kLocal}).proto().optimizer().kind() == OptimizerConfig::NESTEROV);
  CHECK(Valid(kConfig, {kLocal, "workers=1"}).proto().optimizer().learning_rate() == 0.4f);
  CHECK(Valid(kConfig, {kLocal, "workers=7"}).proto().optimizer().learning_rate() == 0.6f);
  CHECK(Valid(kConfig, {kLocal, "workers=8"}).proto().optimizer().learning_rate() == 0.8f);
  const OptimizerConfig given =
      Valid(kConfig, {kLocal, "optimizer={kind: SGD learning_rate: 1}"}).proto().optimizer();
  CHECK(given.kind() == OptimizerConfig::SGD);
  CHECK(given.learning_rate() == 1);
  const OptimizerConfig delayed =
      Valid(kConfig, {kLocal, "workers=3", "update.policy=ASYNC"}).proto().optimizer();
  CHECK(delayed.kind() == OptimizerConfig::DELAYED_NESTEROV);
  CHECK(delayed.delay() == 3);
  // Another number of steps is another run.
  CHECK(Valid(kConfig, {kLocal}).fingerprint() !=
        Valid(kConfig, {kLocal, "local.steps=9"}).fingerprint());
}

TEST_CASE("what local steps cannot be is refused") {
  CHECK(ErrorOf(kConfig, {"local={optimizer {}}"}) ==
        "--set local={optimizer {}}: local.steps: is missing, allowed: at least 1, the batches "
        "between two exchanges");
  CHECK(ErrorOfOverride("local={steps: 8}") ==
        "local.optimizer: is missing, allowed: the optimizer with which a worker trains on each "
        "batch, such as { kind: ADAMW learning_rate: 0.001 }");
  CHECK(ErrorOfLocal("local.steps=0") == "local.steps: is 0, allowed: at least 1");
  CHECK(ErrorOfLocal("local.seconds=-1") == "local.seconds: is -1, allowed: 0 to 604800 seconds");
  CHECK(ErrorOfLocal("local.seconds=nan") == "local.seconds: is nan, allowed: 0 to 604800 seconds");
  CHECK(ErrorOfLocal("local.clip_global_norm=-1") ==
        "local.clip_global_norm: is -1, allowed: a number of at least 0");
  CHECK(ErrorOfLocal("local.mixing=1") == "local.mixing: is 1, allowed: at least 0 and below 1");
  CHECK(ErrorOfLocal("local.optimizer.kind=MEAN") ==
        "local.optimizer.kind: is MEAN, allowed: SGD, MOMENTUM, NESTEROV, ADAM, ADAGRAD, ADAMW, "
        "RMSPROP, RMSPROP_MOMENTUM, ADAM_AMSGRAD, ADAMW_AMSGRAD, LION");
  CHECK(ErrorOfLocal("local.optimizer.momentum=0.5") ==
        "local.optimizer.momentum: has no effect with ADAMW, allowed: only with MOMENTUM, "
        "NESTEROV, RMSPROP_MOMENTUM, DELAYED_NESTEROV");
  CHECK(ErrorOfLocal("local.optimizer.rule={tensors: 'none' weight_decay: 0}")
            .find("local.optimizer.rule[0].tensors[0]: is \"none\", which matches no parameter") ==
        0);
  CHECK(ErrorOfLocal("local.stepped_by=SGD") ==
        "local.stepped_by: is given with a model that the config has, allowed: without it");
}

TEST_CASE("an optimizer for batches is none for rounds") {
  CHECK(ErrorOfLocal("optimizer.kind=ADAM") ==
        "optimizer.kind: is ADAM, allowed: SGD, MOMENTUM, NESTEROV, DELAYED_NESTEROV with local "
        "steps, where local.optimizer has the rule for batches");
  CHECK(ErrorOfLocal("optimizer.learning_rate=0.001") ==
        "optimizer.learning_rate: is 0.001, allowed: 0.02 to 2 with local steps, whose whole round "
        "it multiplies; local.optimizer.learning_rate is that of a batch");
  Valid(kConfig, {kLocal, "optimizer.learning_rate=0.02"});  // the ends of the range
  Valid(kConfig, {kLocal, "optimizer.learning_rate=2"});
  CHECK(ErrorOfLocal("update.clip_global_norm=1", {"update.policy=ASYNC"}) ==
        "update.clip_global_norm: is 1, allowed: 0 with local steps and ASYNC or SSP; "
        "local.clip_global_norm clips the gradient of each batch");
  Valid(kConfig, {kLocal, "update.clip_global_norm=1"});
  CHECK(ErrorOfOverride("optimizer={kind: SGD delay: 2}") ==
        "optimizer.delay: has no effect with SGD, allowed: only with DELAYED_NESTEROV");
}

TEST_CASE("every fragment is exchanged, one after another") {
  Valid(kConfig, {kLocal, "local.fragments=2", "local.overlap_steps=3", "local.mixing=0.5"});
  CHECK(ErrorOfLocal("local.fragments=9") ==
        "local.fragments: is 9, allowed: 1 to local.steps, 8: a fragment is exchanged after a "
        "batch of its own\n--set local.fragments=9: local.fragments: is 9, allowed: at most 2, "
        "the layers of the model custom with parameters, or some fragments would never be "
        "exchanged");
  CHECK(ErrorOfLocal("local.overlap_steps=4", {"local.fragments=2"}) ==
        "local.overlap_steps: is 4, allowed: at least 0, below the 4 batches between the "
        "exchanges of two fragments");
  CHECK(ErrorOfLocal("local.seconds=1", {"local.fragments=2"}) ==
        "local.seconds: is 1, allowed: 0 with local.fragments or local.overlap_steps, which count "
        "batches");
  CHECK(ErrorOfLocal("update={policy: QUORUM quorum: 1}", {"local.fragments=2"}) ==
        "update.policy: is QUORUM, allowed: SYNC, SSP, ASYNC with local.fragments or "
        "local.overlap_steps, since a fragment that is dropped would leave the others behind");
  CHECK(ErrorOfLocal("exchange.schedule=SEQUENTIAL", {"local.fragments=2"}) ==
        "exchange.schedule: is SEQUENTIAL, allowed: BACKWARD, FULL with local.fragments or "
        "local.overlap_steps, whose pushes do not wait for each other");
}

TEST_CASE("a pace is for the backend CPU, and has a device") {
  Valid(kConfig, {"compute.pace={device: 'rtx_2080_ti' worker_slowdown: [1, 4]}"});
  CHECK(ErrorOfOverride("compute.pace={device: 'abacus'}")
            .find("compute.pace.device: is \"abacus\", allowed: \"none\", \"rtx_2080_ti\"") == 0);
  CHECK(ErrorOfOverride("compute.pace={worker_slowdown: [0]}") ==
        "compute.pace.worker_slowdown[0]: is 0, allowed: a number above 0");
  CHECK(ErrorOf(kConfig, {"compute={backend: CUDA pace {}}"}) ==
        "--set compute={backend: CUDA pace {}}: compute.pace: has no effect with CUDA, allowed: "
        "only with CPU");
  CHECK(ErrorOf(kConfig, {"compute={profile: 'rtx_2080_ti' pace {device: 'rtx_2080_ti'}}"})
            .find("compute.profile: has no effect with compute.pace, which has a device") !=
        std::string::npos);
}

}  // namespace
}  // namespace evenshard
