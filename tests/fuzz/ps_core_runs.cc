#include <string>
#include <vector>

#include "tests/fuzz/fuzzing.h"
#include "tests/fuzz/ps_core.h"

namespace evenshard {
namespace {

constexpr char kConfig[] = R"pb(
  model {
    input { channels: 6 height: 1 width: 1 }
    layer {
      name: "fc1"
      linear { out_features: 4 }
    }
    layer {
      name: "norm"
      batch_norm {}
    }
  }
  partition { scheme: STRIPED }
  shard { address: "127.0.0.1:7001" }
  shard { address: "127.0.0.1:7002" }
  workers: 2
  update { policy: SYNC }
  optimizer { kind: SGD learning_rate: 0.125 }
  training { iterations: 100 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 64 exchange_seconds: 60 startup_seconds: 30 reconnect_seconds: 5 }
)pb";

struct Choice {
  bool has_views;
  std::vector<std::string> overrides;
};

const std::vector<Choice>& Choices() {
  static const auto* const choices = new std::vector<Choice>{
      {false, {}},
      {false, {"optimizer.kind=ADAM", "update.deterministic=true"}},
      {false, {"update.clip_global_norm=1"}},
      {false, {"exchange.gradient_encoding=INT8", "exchange.update_encoding=INT4"}},
      {false, {"exchange.gradient_encoding=FLOAT16", "exchange.parameter_encoding=BFLOAT16"}},
      {false, {"update.non_finite=SKIP", "update.clip_value=1"}},
      {false,
       {"update.policy=ASYNC", "optimizer.kind=MOMENTUM",
        "update.asynchrony={correction: DELAY_COMPENSATION}"}},
      {false, {"update.policy=ASYNC", "update.asynchrony={correction: GAP_AWARE}"}},
      {false, {"update.policy=SSP", "update.staleness=1"}},
      {false, {"update.policy=QUORUM", "update.quorum=1"}},
      {false, {"local={steps: 2 optimizer: {kind: SGD learning_rate: 0.1}}"}},
      {true, {"recovery.replicas=1", "recovery.worker_loss=WAIT"}},
      {true,
       {"recovery.replicas=1", "recovery.worker_loss=CONTINUE", "update.clip_global_norm=1",
        "optimizer.kind=ADAM"}},
      {true,
       {"recovery.replicas=1", "recovery.worker_loss=WAIT", "update.policy=ASYNC",
        "optimizer.kind=NESTEROV", "update.asynchrony={correction: ADAPTIVE_DELAY_COMPENSATION}"}},
      {true,
       {"recovery.replicas=1", "recovery.worker_loss=CONTINUE", "update.policy=QUORUM",
        "update.quorum=1"}},
  };
  return *choices;
}

}  // namespace

const std::vector<FuzzedRun>& FuzzedRuns() {
  static const auto* const runs = [] {
    auto* const made = new std::vector<FuzzedRun>;
    for (const Choice& choice : Choices()) {
      auto config = PlannedConfig::Parse(kConfig, "fuzzed.textproto", choice.overrides);
      Require(config.ok(), config.status().message());
      made->push_back({*std::move(config), choice.has_views});
    }
    return made;
  }();
  return *runs;
}

}  // namespace evenshard
