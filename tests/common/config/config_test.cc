#include <google/protobuf/descriptor.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/placement/planned_config.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

std::string Directory() {
  std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/config_test.XXXXXX");
  REQUIRE(mkdtemp(path.data()) != nullptr);
  return path;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  REQUIRE(file.flush());
}

TEST_CASE("a valid config gives its model, its plan and its defaults") {
  const PlannedConfig config = Valid();
  CHECK(config.model().parameter_count() == 64 * 32 + 32 + 32 * 10 + 10);
  CHECK(config.plan().shards() == 2);
  CHECK(config.shards() == 2);
  CHECK(config.workers() == 2);
  CHECK(config.address(1) == "localhost:50052");
  CHECK(config.proto().limits().chunk_bytes() == 16 << 10);
}

TEST_CASE("a chunk size that is not given is chosen for the model, the shards and their rates") {
  const PlannedConfig chosen = Valid(kConfig, {"model={builtin: 'mnist_mlp'}"});
  CHECK(chosen.proto().limits().chunk_bytes() == 16'384);
  CHECK(chosen.plan_choice().chunk_bytes_reason == "smaller chunks would cost more than they gain");
  CHECK(chosen.plan().chunks().front().size == 16'384 / 4);

  const PlannedConfig given =
      Valid(kConfig, {"limits.chunk_bytes=16384", "model={builtin: 'mnist_mlp'}"});
  CHECK(given.plan_choice().chunk_bytes_reason == "as the config says");
  CHECK(given.fingerprint() == chosen.fingerprint());
  CHECK(given.plan().fingerprint() == chosen.plan().fingerprint());

  // The fixed schemes do not go by rates, which processes may then differ in.
  const Overrides rates = {"shard[0].link_gbps=100", "shard[1].link_gbps=100"};
  CHECK(Valid(kConfig, rates).proto().limits().chunk_bytes() == 16'384);
  Overrides striped = rates;
  striped.push_back("partition.scheme=STRIPED");
  const PlannedConfig fast = Valid(kConfig, striped);
  CHECK(fast.proto().limits().chunk_bytes() == 41'728);
  CHECK(fast.plan_choice().chunk_bytes_reason ==
        "with smaller chunks, processors would not keep up with links of 100 Gb/s");
}

TEST_CASE("the window and the lead follow from the chunk size unless they are given") {
  struct Case {
    int64_t chunk_bytes;
    int64_t window_bytes;
    int64_t lead_bytes;
  };
  for (const Case& c : {Case{64, 65'536, 131'072}, Case{81'920, 81'920, 262'144},
                        Case{655'360, 655'360, 2'097'152}, Case{4'194'304, 655'360, 2'097'152}}) {
    CAPTURE(c.chunk_bytes);
    const std::string chunks = absl::StrCat("limits.chunk_bytes=", c.chunk_bytes);
    const Limits limits = Valid(kConfig, {chunks}).proto().limits();
    CHECK(limits.window_bytes() == c.window_bytes);
    CHECK(limits.lead_bytes() == c.lead_bytes);
    const Limits given =
        Valid(kConfig, {chunks, "limits.window_bytes=99999", "limits.lead_bytes=0"})
            .proto()
            .limits();
    CHECK(given.window_bytes() == 99'999);
    CHECK(given.lead_bytes() == 0);
  }
  const Limits chosen = Valid().proto().limits();
  CHECK(chosen.chunk_bytes() == 16'384);
  CHECK(chosen.window_bytes() == 65'536);
  CHECK(chosen.lead_bytes() == 131'072);
}

TEST_CASE("every example in configs/ loads") {
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".textproto") continue;
    const absl::StatusOr<PlannedConfig> config = PlannedConfig::Load(entry.path());
    INFO(entry.path());
    if (!config.ok()) FAIL_CHECK(config.status());
    ++loaded;
  }
  CHECK(loaded >= 10);
}

void RequireFieldsNamed(const google::protobuf::Descriptor& message, const std::string& text) {
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    INFO(field.full_name());
    CHECK(absl::StrContains(text, absl::StrCat("`", field.name(), "`")));
    // A residual block contains layers, so the recursion ends here.
    if (field.message_type() != nullptr && message.name() != "Residual") {
      RequireFieldsNamed(*field.message_type(), text);
    }
  }
}

TEST_CASE("docs/configuration.md names every field") {
  std::ifstream file("docs/configuration.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  REQUIRE(!text.empty());
  RequireFieldsNamed(*ClusterConfig::descriptor(), text);
}

TEST_CASE("a config file that cannot be read is a clear error") {
  const std::string directory = Directory();
  absl::Status status = PlannedConfig::Load(directory + "/none.textproto").status();
  CHECK(absl::IsNotFound(status));
  CHECK(absl::StrContains(status.message(), directory + "/none.textproto"));
  status = PlannedConfig::Load(directory).status();
  CHECK(!status.ok());
  CHECK(absl::StrContains(status.message(), "Is a directory"));
  CHECK(absl::StrContains(PlannedConfig::Load("/dev/zero").status().message(), "is too large"));
  Write(directory + "/empty.textproto", "");
  CHECK(PlannedConfig::Load(directory + "/empty.textproto").status().message() ==
        directory +
            "/empty.textproto:1: is empty, allowed: a ClusterConfig as "
            "docs/configuration.md describes it");
}

std::string Repeat(absl::string_view text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) absl::StrAppend(&repeated, text);
  return repeated;
}

// A layer with `depth` residual blocks within one another.
std::string NestedBlocks(int depth) {
  return absl::StrCat("layer { ", Repeat("residual { body { ", depth), "relu {}",
                      Repeat(" } }", depth), " }");
}

std::string WithLayer(const std::string& layer) {
  return absl::StrReplaceAll(kConfig, {{"layer { relu {} }", layer}});
}

TEST_CASE("a text may nest 64 messages, one that nests more is refused at its line") {
  // model, layer, and two for each block; relu.
  CHECK(Valid(WithLayer(NestedBlocks(30))).model().layers().size() > 30);
  const std::string too_deep = "messages are nested too deep, allowed: 64 within one another";
  CHECK(ErrorOf(WithLayer(NestedBlocks(31))) == "f:4: " + too_deep);
  CHECK(ErrorOf(WithLayer(NestedBlocks(10'000))) == "f:4: " + too_deep);
}

TEST_CASE("unknown fields, too, may not nest without end") {
  const int depth = 100'000;
  for (const std::string& nested :
       {Repeat("x {", depth) + Repeat("}", depth), Repeat("x <", depth) + Repeat(">", depth),
        Repeat("x: {", depth) + Repeat("}", depth), Repeat("x: [{", depth) + Repeat("}]", depth),
        "x: " + Repeat("[", depth) + Repeat("]", depth), Repeat("x {", depth)}) {
    const std::string error = ErrorOf(absl::StrCat(kConfig, nested));
    INFO(nested.substr(0, 10));
    CHECK(absl::StartsWith(error, "f:17: x: unknown field, allowed: model, "));
    CHECK(absl::EndsWith(error,
                         "\nf:17: messages are nested too deep, allowed: 64 within one another"));
  }
}

TEST_CASE("braces in strings, in comments and side by side do not count as nesting") {
  const std::string braces = Repeat("{[<", 1000);
  const std::string text = absl::StrReplaceAll(
      kConfig, {{"digits/images", braces}, {"workers: 2", "workers: 2  # " + braces}});
  CHECK(Valid(text).proto().data().idx().images() == braces);
  const std::string relus = Repeat("layer { relu {} }", 1000);
  CHECK(Valid(WithLayer(relus)).model().layers().size() == 1002);
  CHECK(absl::EndsWith(ErrorOf(absl::StrCat(kConfig, Repeat("x {} ", 100), "y: [[1]]")),
                       "\nf:17: unknown fields from here on: 81"));
}

TEST_CASE("relative paths become relative to the config file, absolute ones stay") {
  const std::string directory = Directory();
  const std::string path = directory + "/run.textproto";
  Write(path, kConfig);
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Load(path);
  REQUIRE(config.ok());
  CHECK(config->proto().data().idx().images() == directory + "/digits/images");
  CHECK(config->proto().data().idx().labels() == "/abs/labels");
  // A file name without a folder is in the current folder.
  CHECK(Valid().proto().data().idx().images() == "digits/images");
}

TEST_CASE("a field error carries the place where the field was set") {
  const PlannedConfig config = Valid(kConfig, {"data.idx.labels=other", "data.holdout=0"});
  const absl::Status status = config.FieldError("data.idx.images", "digits/images: is truncated");
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "f:14: data.idx.images: digits/images: is truncated");
  CHECK(config.FieldError("data.idx.labels", "x").message() ==
        "--set data.idx.labels=other: data.idx.labels: x");
  CHECK(config.FieldError("data.augment.flip", "x").message() == "f:13: data.augment.flip: x");
  CHECK(config.FieldError("limits.connections", "x").message() == "f:1: limits.connections: x");
}

TEST_CASE("the fingerprint changes with all that shards and workers must agree on") {
  const uint64_t fingerprint = Valid().fingerprint();
  for (const std::string override :
       {"workers=3", "update.policy=ASYNC", "update.clip_global_norm=1", "training.seed=2",
        "training.batch_size=5", "training.epochs=4", "training.iterations=3",
        "optimizer.learning_rate=0.02", "limits.chunk_bytes=64", "partition.scheme=LAYER_BASED",
        "shard=[{address: 'a:1'}]", "model.layer[0].linear.bias=false", "data.holdout=0.1",
        "data.synthetic={}", "data.augment.flip=true", "update.deterministic=true",
        "exchange.gradient_encoding=FLOAT16", "exchange.parameter_encoding=BFLOAT16",
        "model.initial_values=HE_UNIFORM"}) {
    INFO(override);
    CHECK(Valid(kConfig, {override}).fingerprint() != fingerprint);
  }
}

TEST_CASE("the fingerprint ignores what may differ between processes") {
  const uint64_t fingerprint = Valid().fingerprint();
  for (const std::string override :
       {"shard[0].address=other:1", "data.idx.images=/elsewhere", "compute.threads=3",
        "data.threads=2", "limits.connections=2", "limits.startup_seconds=1",
        "limits.exchange_seconds=1", "limits.shutdown_seconds=1", "limits.held_bytes=2000000",
        "limits.window_bytes=65536", "limits.lead_bytes=0", "training.evaluate_every_epochs=1",
        "training.evaluate_every_iterations=1", "training.required_accuracy=0.5",
        "exchange.shared_memory=false", "security.insecure=true",
        "security={certificate: 'a' key: 'b' authority: 'c' run: 'd' name: 'worker-1'}"}) {
    INFO(override);
    CHECK(Valid(kConfig, {override}).fingerprint() == fingerprint);
  }
}

TEST_CASE("rates are part of what must be equal only with schemes that go by them") {
  const Overrides rates = {"shard[0].link_gbps=10", "shard[1].link_gbps=2.5"};
  CHECK(Valid(kConfig, rates).fingerprint() == Valid().fingerprint());
  CHECK(Valid(kConfig, rates).plan().fingerprint() == Valid().plan().fingerprint());
  const std::string scheme = GENERATE("AUTO", "STRIPED");
  CAPTURE(scheme);
  Overrides automatic = {"partition.scheme=" + scheme, "compute.profile=none"};
  const PlannedConfig equal = Valid(kConfig, automatic);
  automatic.insert(automatic.end(), rates.begin(), rates.end());
  const PlannedConfig uneven = Valid(kConfig, automatic);
  CHECK(uneven.fingerprint() != equal.fingerprint());
  if (scheme == "STRIPED") {
    // The smaller of link_gbps and server_gbps counts.
    Overrides slowed = automatic;
    slowed.push_back("shard[0].server_gbps=2.5");
    CHECK(Valid(kConfig, slowed).plan().fingerprint() == equal.plan().fingerprint());
  }
  CHECK(uneven.plan().shard_parameters(0) > 3 * uneven.plan().shard_parameters(1));
  // A placement is allowed but has no effect, because the cuts do not follow layers.
  CHECK(Valid(kConfig,
              {"partition={scheme: " + scheme + " placement: GREEDY}", "compute.profile=none"})
            .fingerprint() == equal.fingerprint());
  // What the workers' links carry and how fast they compute matters to a decision only.
  for (const std::string override :
       {"worker_link_gbps=25", "compute.profile=rtx_2080_ti", "colocated=true"}) {
    CAPTURE(override);
    Overrides faster = automatic;
    faster.push_back(override);
    CHECK((Valid(kConfig, faster).fingerprint() == uneven.fingerprint()) == (scheme == "STRIPED"));
  }
}

TEST_CASE("a default that is written out does not change the fingerprint") {
  const uint64_t fingerprint = Valid().fingerprint();
  for (const std::string override :
       {"optimizer={kind: SGD learning_rate: 0.01 weight_decay: 0 schedule {kind: CONSTANT "
        "warmup_iterations: 0}}",
        "optimizer={}", "compute={backend: CPU}", "limits={chunk_bytes: 16384}",
        "training={batch_size: 4 epochs: 3 seed: 1}", "model.layer[2].linear.bias=true",
        "model.initial_values=PYTORCH",
        // This is not the default, but it has no effect: cuts do not follow layers.
        "partition.placement=GREEDY"}) {
    INFO(override);
    CHECK(Valid(kConfig, {override}).fingerprint() == fingerprint);
  }
  CHECK(Valid(kConfig, {"data.synthetic={}"}).fingerprint() ==
        Valid(kConfig, {"data.synthetic={classes: 10 images: 1024 shape {channels: 1 height: 8 "
                        "width: 8}}"})
            .fingerprint());
  const auto fingerprint_with_pool = [](const std::string& pool) {
    const std::string text = absl::StrReplaceAll(
        kConfig, {{"layer { relu {} }", absl::StrCat("layer { max_pool { ", pool, " } }")},
                  {"linear { out_features: 32 }", "conv { out_channels: 4 kernel: 1 }"}});
    return Valid(text).fingerprint();
  };
  CHECK(fingerprint_with_pool("kernel: 2 stride: 2") == fingerprint_with_pool("kernel: 2"));
  CHECK(fingerprint_with_pool("kernel: 2 stride: 1") != fingerprint_with_pool("kernel: 2"));
}

TEST_CASE("the contract tells a beta2 of 0 from that of the kind") {
  const PlannedConfig none = Valid(kConfig, {"optimizer={kind: ADAM beta2: 0}"});
  CHECK(none.Contract().optimizer().has_beta2());
  CHECK(none.fingerprint() != Valid(kConfig, {"optimizer={kind: ADAM}"}).fingerprint());
  const char* const kLocal = "local={steps: 4 optimizer {kind: ADAM beta2: 0}}";
  CHECK(Valid(kConfig, {kLocal}).Contract().local().optimizer().has_beta2());
}

TEST_CASE("the contract names no machine") {
  const ClusterConfig contract = Valid().Contract();
  CHECK(contract.shard_size() == 2);
  CHECK(!contract.shard(0).has_address());
  CHECK(!contract.data().idx().has_images());
  CHECK(contract.data().source_case() == Data::kIdx);
  // The contract has no limit but the size of chunks.
  CHECK(contract.limits().ShortDebugString() == "chunk_bytes: 16384");
}

TEST_CASE("a config is read without its model and its plan") {
  const Overrides overrides = {"model={builtin: \"none\"}", "partition.scheme=AUTO"};
  const absl::StatusOr<Config> config = Config::Parse(kConfig, "f", overrides);
  REQUIRE(config.ok());
  CHECK(config->address(1) == "localhost:50052");
  CHECK(config->proto().exchange().schedule() == ExchangeConfig::FULL);
  CHECK_THAT(ErrorOf(kConfig, overrides), Catch::Contains("model.builtin"));
  CHECK(Config::Parse(kConfig, "f", {"workers=0"}).status().message() ==
        ErrorOf(kConfig, {"workers=0"}));
}

}  // namespace
}  // namespace evenshard
