#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

TEST_CASE("an override sets any field as the file would") {
  CHECK(Valid(kConfig, {"workers=3"}).workers() == 3);
  CHECK(Valid(kConfig, {"update.policy=ASYNC"}).proto().update().policy() == Update::ASYNC);
  CHECK(Valid(kConfig, {"update.deterministic = true"}).proto().update().deterministic());
  CHECK(Valid(kConfig, {"optimizer.learning_rate=1e-3"}).proto().optimizer().learning_rate() ==
        1e-3f);
  CHECK(Valid(kConfig, {"shard[1].address=unix:/tmp/a=b"}).address(1) == "unix:/tmp/a=b");
  CHECK(Valid(kConfig, {"shard[0].address=\"h:1\""}).address(0) == "h:1");
  CHECK(Valid(kConfig, {"shard[0]={address: 'h:1'}"}).address(0) == "h:1");
  CHECK(Valid(kConfig, {"shard=[{address: 'h:1'}]"}).shards() == 1);
  CHECK(Valid(kConfig, {"model.layer[0].linear.out_features=5"}).model().parameter_count() ==
        64 * 5 + 5 + 5 * 10 + 10);
  CHECK(Valid(kConfig, {"workers=3", "workers=4"}).workers() == 4);
}

TEST_CASE("an override sets an element of a list of numbers, and leaves the others") {
  const std::string text =
      absl::StrCat(kConfig, "compute { backend: CUDA cuda { device: [4, 5, 6] } }");
  const auto devices = [&](const Overrides& overrides) {
    const PlannedConfig config = Valid(text, overrides);
    const auto& device = config.proto().compute().cuda().device();
    return std::vector<int>(device.begin(), device.end());
  };
  CHECK(devices({"compute.cuda.device[0]=1"}) == std::vector<int>{1, 5, 6});
  CHECK(devices({"compute.cuda.device[1]= [1] "}) == std::vector<int>{4, 1, 6});
  CHECK(devices({"compute.cuda.device[2]=1", "compute.cuda.device[0]=2"}) ==
        std::vector<int>{2, 5, 1});
  CHECK(devices({"compute.cuda.device=[7, 8]", "compute.cuda.device[1]=9"}) ==
        std::vector<int>{7, 9});
  CHECK(devices({"compute.cuda.device=1"}) == std::vector<int>{1});
  const auto error = [&](const std::string& override) { return ErrorOf(text, {override}); };
  CHECK(error("compute.cuda.device[0]=one") ==
        "--set compute.cuda.device[0]=one: compute.cuda.device: is one, allowed: a whole number of "
        "32 bits");
  CHECK(error("compute.cuda.device[0]=[1, 2]") ==
        "--set compute.cuda.device[0]=[1, 2]: compute.cuda.device[0]: takes exactly one value");
  CHECK(error("compute.cuda.device[0]=[]") ==
        "--set compute.cuda.device[0]=[]: compute.cuda.device[0]: takes exactly one value");
  CHECK(error("compute.cuda.device[3]=1") ==
        "--set compute.cuda.device[3]=1: compute.cuda.device[3]: there is no such element, "
        "allowed: compute.cuda.device[0] to compute.cuda.device[2]");
  CHECK(error("compute.cuda.device[0].x=1") ==
        "--set compute.cuda.device[0].x=1: compute.cuda.device[0]: has no fields of its own, "
        "allowed as its value: a whole number of 32 bits");
  CHECK(ErrorOfOverride("compute.cuda.device[0]=1") ==
        "compute.cuda.device[0]: there is no such element, allowed: nothing, the list is empty; "
        "give the whole list as compute.cuda.device=[...]");
}

TEST_CASE("the nesting of an override is counted from the top of the config") {
  const auto residual = [](int depth) {
    std::string value = "relu {}";
    for (int i = 0; i < depth; ++i) value = absl::StrCat("residual { body { ", value, " } }");
    return absl::StrCat("model.layer[1]={", value, "}");
  };
  CHECK(Valid(kConfig, {residual(30)}).model().layers().size() > 30);
  for (const int depth : {31, 10'000}) {
    CHECK(ErrorOfOverride(residual(depth)) ==
          "model.layer[1]: messages are nested too deep, allowed: 64 within one another");
  }
}

TEST_CASE("an override of a message replaces it whole, one of a oneof replaces its other members") {
  const PlannedConfig config =
      Valid(kConfig, {"data.synthetic={images: 64}", "training={iterations: 9}"});
  CHECK(config.proto().data().source_case() == Data::kSynthetic);
  CHECK(config.proto().data().synthetic().images() == 64);
  CHECK(config.proto().data().holdout() == 0.2f);
  CHECK(config.proto().training().batch_size() == 32);
  CHECK(Valid(kConfig, {"data.synthetic.images=65"}).proto().data().has_synthetic());
  const Training training = Valid(kConfig, {"training.iterations=9"}).proto().training();
  CHECK(!training.has_epochs());
  CHECK(training.iterations() == 9);
}

TEST_CASE("a wrong override is refused with its own text as the place") {
  CHECK(ErrorOfOverride("workers=0") == "workers: is 0, allowed: 1 to 1024");
  CHECK(ErrorOfOverride("workers=two") == "workers: is two, allowed: a whole number of 32 bits");
  CHECK(ErrorOfOverride("workers=") ==
        "workers: is the end of the text, allowed: a whole number of 32 bits");
  CHECK(ErrorOfOverride("workers") == "is not an override, allowed: FIELD=VALUE");
  CHECK(ErrorOfOverride("=5") == "is not an override, allowed: FIELD=VALUE");
  CHECK(ErrorOfOverride("update.polcy=SYNC") ==
        "update.polcy: unknown field, allowed: policy, deterministic, non_finite, clip_value, "
        "clip_global_norm, staleness, asynchrony, quorum, grace, late, max_norm");
  CHECK(ErrorOfOverride("update.policy=SNYC") ==
        "update.policy: is SNYC, allowed: SYNC, ASYNC, SSP, QUORUM");
  CHECK(ErrorOfOverride("data.synthetic={image: 64}") ==
        "data.synthetic.image: unknown field, allowed: shape, classes, images, noise");
  CHECK(ErrorOfOverride("workers.count=1") ==
        "workers: has no fields of its own, allowed as its value: a whole number of 32 bits");
  CHECK(ErrorOfOverride("workers[0]=1") == "workers[0]: is not a list, it takes no index");
  for (const std::string index : {"2", "-1", "x", "", "0][", "00", "+1", " 1"}) {
    const std::string element = absl::StrCat("shard[", index, "]");
    CHECK(ErrorOfOverride(element + ".address=h:1") ==
          absl::StrCat(element, ": there is no such element, allowed: shard[0] to shard[1]"));
  }
  CHECK(ErrorOfOverride("model.layer[0].residual.body[0].name=x") ==
        "model.layer[0].residual.body[0]: there is no such element, allowed: nothing, the list is "
        "empty; give the whole list as model.layer[0].residual.body=[{...}]");
  CHECK(ErrorOfOverride("shard.address=h:1") ==
        "shard: is a list and needs an index, allowed: shard[0] to shard[1]");
  CHECK(ErrorOfOverride("workers=2 update { policy: SYNC }") == "workers: takes exactly one value");
  CHECK(ErrorOfOverride("shard[0]=[{address: 'a:1'}, {address: 'a:2'}]") ==
        "shard[0]: takes exactly one value");
  CHECK(ErrorOf(kConfig, {"workers=two", "update.policy=SNYC"}) ==
        "--set workers=two: workers: is two, allowed: a whole number of 32 bits\n"
        "--set update.policy=SNYC: update.policy: is SNYC, allowed: SYNC, ASYNC, SSP, QUORUM");
}

TEST_CASE("an override that makes another field wrong is the place of the error") {
  const std::string text =
      absl::StrReplaceAll(kConfig, {{"policy: SYNC", "policy: SYNC deterministic: true"}});
  CHECK(ErrorOf(text, {"update.policy=ASYNC"}) ==
        "--set update.policy=ASYNC: update.deterministic: is true with policy ASYNC, allowed: only "
        "with SYNC and QUORUM");
  CHECK(ErrorOfOverride("shard[0].address=localhost:50052") ==
        "shard[1].address: is \"localhost:50052\", the same as shard[0].address, allowed: a "
        "different address for each shard");
  CHECK(absl::StartsWith(ErrorOfOverride("limits.chunk_bytes=67108864"), "limits.held_bytes: "));
  CHECK(absl::StartsWith(ErrorOfOverride("compute.backend=EMULATED"), "training.epochs: "));
}

}  // namespace
}  // namespace evenshard
