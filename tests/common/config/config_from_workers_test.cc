// Configs with model.from_workers, before and after workers have declared their model.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/placement/declaration.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

constexpr char kUndeclared[] = R"(model { from_workers {} }
partition { scheme: MEMORY_BASED }
shard { address: "localhost:50051" }
shard { address: "localhost:50052" }
workers: 2
update { policy: SYNC }
)";

DeclaredTensor Tensor(const std::string& name, std::vector<int64_t> shape) {
  DeclaredTensor tensor;
  tensor.set_name(name);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  return tensor;
}

Declaration Declare(const std::vector<DeclaredTensor>& tensors) {
  Declaration declaration;
  for (const DeclaredTensor& tensor : tensors) {
    *declaration.mutable_model()->add_tensor() = tensor;
  }
  return declaration;
}

const std::vector<DeclaredTensor> kTensors = {Tensor("net.fc1.weight", {20, 10}),
                                              Tensor("net.fc1.bias", {20}), Tensor("net.scale", {}),
                                              Tensor("out/weight", {3, 20})};

std::string ErrorOfDeclaration(const std::string& text, const Declaration& declaration) {
  const absl::StatusOr<PlannedConfig> config = Valid(text).Declared(declaration);
  return config.ok() ? "no error" : std::string(config.status().message());
}

TEST_CASE("a declared model has the tensors as they were declared, in layers by their names") {
  const PlannedConfig undeclared = Valid(kUndeclared, {"partition.scheme=LAYER_BASED"});
  CHECK_FALSE(undeclared.has_model());
  CHECK(undeclared.is_from_workers());
  const absl::StatusOr<PlannedConfig> config = undeclared.Declared(Declare(kTensors));
  REQUIRE(config.ok());
  CHECK(config->has_model());
  CHECK(config->model().parameter_count() == 200 + 20 + 1 + 60);
  REQUIRE(config->model().layers().size() == 3);
  CHECK(config->model().layers()[0].name == "net.fc1");
  CHECK(config->model().layers()[0].tensor_count == 2);
  CHECK(config->model().layers()[0].elements == 220);
  CHECK(config->model().layers()[1].name == "net");
  CHECK(config->model().layers()[2].name == "out");
  // LAYER_BASED places the layers in turn.
  CHECK(config->plan().shard_parameters(0) == 280);
  CHECK(config->plan().shard_parameters(1) == 1);
}

TEST_CASE("processes of a run agree before the model is known, and differ in the model after") {
  const PlannedConfig undeclared = Valid(kUndeclared);
  const PlannedConfig declared = *undeclared.Declared(Declare(kTensors));
  CHECK(declared.run_fingerprint() == undeclared.run_fingerprint());
  CHECK(declared.fingerprint() != undeclared.fingerprint());
  // The same model in the file is the same run.
  const PlannedConfig in_file =
      Valid(kUndeclared, {"model.from_workers={tensor {name: \"w\" shape: [64]}}"});
  CHECK(in_file.has_model());
  CHECK(in_file.run_fingerprint() == undeclared.run_fingerprint());
  CHECK(in_file.fingerprint() == undeclared.Declared(Declare({Tensor("w", {64})}))->fingerprint());
  CHECK(Valid().run_fingerprint() == Valid().fingerprint());
}

TEST_CASE("a worker may bring the optimizer if the file has none") {
  Declaration declaration = Declare(kTensors);
  declaration.mutable_optimizer()->set_kind(OptimizerConfig::ADAM);
  const absl::StatusOr<PlannedConfig> config = Valid(kUndeclared).Declared(declaration);
  REQUIRE(config.ok());
  CHECK(config->proto().optimizer().kind() == OptimizerConfig::ADAM);
  CHECK(config->run_fingerprint() == Valid(kUndeclared).run_fingerprint());
  const std::string has_one = absl::StrCat(kUndeclared, "optimizer { kind: MOMENTUM }\n");
  CHECK(ErrorOfDeclaration(has_one, declaration) ==
        "f:7: optimizer: is given, and the worker brings one too, allowed: one");
}

TEST_CASE("what is wrong with a declared model is said") {
  CHECK_THAT(ErrorOfDeclaration(kUndeclared, Declare({Tensor("", {1})})),
             Contains("model.from_workers.tensor[0]: the name is \"\", allowed: 1 to 512 bytes"));
  CHECK_THAT(ErrorOfDeclaration(kUndeclared, Declare({Tensor("a", {1}), Tensor("a", {2})})),
             Contains("model.from_workers.tensor[1]: the name \"a\" is taken"));
  CHECK_THAT(ErrorOfDeclaration(kUndeclared, Declare({Tensor("a", {4, 0})})),
             Contains("each extent of a must be given and positive, it is 0"));
  CHECK_THAT(ErrorOfDeclaration(kUndeclared, Declare({Tensor("a", {1 << 30, 1 << 30})})),
             Contains("the most allowed"));
  DeclaredTensor statistic = Tensor("mean", {8});
  statistic.set_role(DeclaredTensor::RUNNING_STATISTIC);
  CHECK_THAT(ErrorOfDeclaration(kUndeclared, Declare({statistic})),
             Contains("the model has no parameters"));
  CHECK_THAT(ErrorOfDeclaration(absl::StrCat(kUndeclared, "limits { model_bytes: 1000 }\n"),
                                Declare(kTensors)),
             Contains("f:7: limits.model_bytes: is 1000, and the workers bring a model of 1124 "
                      "bytes"));
}

TEST_CASE("another model than the file's is refused with what differs") {
  const PlannedConfig in_file =
      Valid(kUndeclared, {"model.from_workers={tensor {name: \"w\" shape: [64]}}"});
  CHECK(in_file.Declared(Declare({Tensor("w", {64})})).ok());
  const auto other = in_file.Declared(Declare({Tensor("w", {65})}));
  CHECK_THAT(std::string(other.status().message()),
             Contains("tensor 0 is w [64], and w [65] there"));
  CHECK(absl::IsFailedPrecondition(Valid().Declared(Declare(kTensors)).status()));
}

TEST_CASE("another model's names are printed as they may be on a terminal") {
  const PlannedConfig in_file = *Valid(kUndeclared).Declared(Declare({Tensor("w", {64})}));
  const auto other = in_file.Declared(Declare({Tensor("\x1b[2Jw", {64})}));
  CHECK(absl::StrContains(other.status().message(), "tensor 0 is w [64], and \\x1b[2Jw [64]"));
}

TEST_CASE("two declared models differ where one has another tensor, role, layer or more of them") {
  const FromWorkers model = Declare(kTensors).model();
  CHECK(DeclaredDifference(model, model).empty());
  FromWorkers other = model;
  other.mutable_tensor(1)->set_role(DeclaredTensor::RUNNING_STATISTIC);
  CHECK(DeclaredDifference(model, other) ==
        "tensor 1 is net.fc1.bias [20], and net.fc1.bias [20], a running statistic there");
  other = model;
  other.mutable_tensor(1)->set_type(BFLOAT16);
  CHECK(DeclaredDifference(model, other) ==
        "tensor 1 is net.fc1.bias [20], and net.fc1.bias [20] of BFLOAT16 there");
  other = model;
  other.mutable_tensor()->RemoveLast();
  CHECK(DeclaredDifference(model, other) ==
        "it has 4 tensors, and 3 there: out/weight [3, 20] is missing there");
  CHECK(DeclaredDifference(other, model) ==
        "it has 3 tensors, and 4 there: out/weight [3, 20] is missing here");
}

TEST_CASE("shards clip the mean for workers that bring the model, but no worker's own gradient") {
  CHECK(Valid(kUndeclared, {"update.clip_global_norm=1"}).clips_mean());
  CHECK_FALSE(Valid(kUndeclared).clips_mean());
  CHECK_THAT(
      ErrorOf(kUndeclared, {"update.policy=ASYNC", "update.clip_global_norm=1"}),
      Contains(
          "update.clip_global_norm: is 1, allowed: 0 with ASYNC or SSP and model.from_workers"));
}

TEST_CASE("a shard places tensors as the worker that declares them, also those of no layer") {
  std::vector<DeclaredTensor> tensors = kTensors;
  tensors[1].set_layer("");
  const PlannedConfig undeclared = Valid(kUndeclared, {"partition.scheme=LAYER_BASED"});
  const absl::StatusOr<PlannedConfig> declared = undeclared.Declared(Declare(tensors));
  REQUIRE(declared.ok());
  const absl::StatusOr<PlannedConfig> received =
      undeclared.Declared(DeclarationOf(declared->Contract(), undeclared.proto()));
  REQUIRE(received.ok());
  CHECK(received->plan().fingerprint() == declared->plan().fingerprint());
  CHECK(received->model().layers().size() == 4);
}

TEST_CASE("workers may bring the clipping, if the config has none") {
  Declaration declaration = Declare(kTensors);
  declaration.set_clip_global_norm(2);
  declaration.set_clip_value(0.5);
  const PlannedConfig undeclared = Valid(kUndeclared);
  const absl::StatusOr<PlannedConfig> declared = undeclared.Declared(declaration);
  REQUIRE(declared.ok());
  CHECK(declared->clips_mean());
  CHECK(declared->proto().update().clip_global_norm() == 2);
  CHECK(declared->proto().update().clip_value() == 0.5f);
  CHECK(declared->fingerprint() != undeclared.Declared(Declare(kTensors))->fingerprint());
  CHECK(declared->run_fingerprint() == undeclared.run_fingerprint());
  // As a shard reads it from what a worker sends, and another worker's declaration beside it.
  const Declaration sent = DeclarationOf(declared->Contract(), undeclared.proto());
  CHECK(sent.clip_global_norm() == 2);
  CHECK(DeclarationDifference(declared->declaration(), sent).empty());
  CHECK(DeclarationDifference(declared->declaration(), Declare(kTensors)) ==
        "the clipping is {clip_value: 0.5 clip_global_norm: 2}, and {} there");

  const absl::StatusOr<PlannedConfig> twice =
      Valid(kUndeclared, {"update.clip_value=0.5"}).Declared(declaration);
  CHECK_THAT(std::string(twice.status().message()),
             Contains("update.clip_value: is given, and the worker brings one too, allowed: one"));
}

TEST_CASE("what workers bring with local steps is no gradient to correct") {
  const std::string corrected = absl::StrReplaceAll(
      kUndeclared, {{"policy: SYNC", "policy: ASYNC asynchrony { correction: GAP_AWARE }"}});
  Declaration declaration = Declare(kTensors);
  CHECK(ErrorOfDeclaration(corrected, declaration) == "no error");
  declaration.mutable_local()->set_steps(4);
  CHECK_THAT(ErrorOfDeclaration(corrected, declaration),
             Contains("update.asynchrony.correction: is GAP_AWARE with local"));
}

TEST_CASE("fields of which the workers' program takes care are refused") {
  for (const auto& [field, value] :
       {std::pair("training", "{iterations: 1}"), std::pair("data", "{synthetic: {}}"),
        std::pair("compute", "{backend: EMULATED}"), std::pair("model.builtin", "vgg16"),
        std::pair("model.initial_parameters", "f")}) {
    CHECK_THAT(ErrorOf(kUndeclared, {absl::StrCat(field, "=", value)}),
               Contains(absl::StrCat(field, ": has no effect with model.from_workers")));
  }
}

}  // namespace
}  // namespace evenshard
