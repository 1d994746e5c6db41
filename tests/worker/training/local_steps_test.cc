// Workers with local steps, over gRPC, against a computation by hand of what they and the shards
// do.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/plan/fragments.h"
#include "tests/testing/cluster.h"
#include "tests/testing/unix_shards.h"
#include "tests/worker/training/played_exchange.h"
#include "worker/training/trainer.h"

namespace evenshard {
namespace {

using Values = std::vector<double>;

const std::vector<int> kLayers = {0, 2, 4};  // with tensors

// What a worker's batches pull the model towards.
double Target(int rank, int64_t iteration, int64_t element) {
  return 0.1 * CounterRandom(rank * 1000 + iteration, "target").Normal(element);
}

// The gradient of 1/2 |w - target|^2, or one that does not depend on the parameters. Some are NaN.
struct Gradients {
  bool is_constant = false;
  std::map<int, std::vector<int64_t>> broken = {};  // iterations, by rank
  // By rank, how long each pass takes.
  std::vector<absl::Duration> takes = {};
  // The gradients of worker 2 are a thousand times as large from this iteration on.
  int64_t huge_from = std::numeric_limits<int64_t>::max();

  double Scale(int rank, int64_t iteration) const {
    return rank == 2 && iteration >= huge_from ? 1000 : 1;
  }
};

class PullingBackend final : public ComputeBackend {
 public:
  PullingBackend(const Model& model, int rank, const Gradients& gradients,
                 std::vector<int64_t>* passes)
      : model_(model), rank_(rank), gradients_(gradients), passes_(*passes) {}

  absl::StatusOr<BatchResult> ForwardBackward(const Batch&, absl::Span<const float> parameters,
                                              int64_t iteration, absl::Span<float> gradients,
                                              LayerHooks& hooks) override {
    for (const int layer : kLayers) {
      if (const absl::Status status = hooks.AwaitParameters(layer); !status.ok()) return status;
    }
    if (!gradients_.takes.empty()) absl::SleepFor(gradients_.takes[rank_]);
    for (const Tensor& tensor : model_.tensors()) {
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
        const double from = gradients_.is_constant ? 0 : parameters[i];
        gradients[i] = static_cast<float>(gradients_.Scale(rank_, iteration) *
                                          (from - Target(rank_, iteration, i)));
      }
    }
    const auto broken = gradients_.broken.find(rank_);
    if (broken != gradients_.broken.end() &&
        std::count(broken->second.begin(), broken->second.end(), iteration) > 0) {
      gradients[0] = std::nanf("");
    }
    for (auto layer = kLayers.rbegin(); layer != kLayers.rend(); ++layer) {
      if (const absl::Status status = hooks.GradientReady(*layer); !status.ok()) return status;
    }
    passes_.push_back(iteration);
    return BatchResult{.loss = 1};
  }
  absl::StatusOr<BatchResult> Evaluate(const Batch&, absl::Span<const float>) override {
    return BatchResult{.loss = 1};
  }

 private:
  const Model& model_;
  const int rank_;
  const Gradients& gradients_;
  std::vector<int64_t>& passes_;
};

struct Outcome {
  std::vector<float> parameters;
  std::vector<std::vector<int64_t>> passes;  // by rank, the iterations in order
  uint64_t bytes_in = 0;                     // of the answers to worker 0
  std::vector<uint64_t> limited;             // by rank, pushes of chunks
};

Outcome Run(const PlannedConfig& config, const Gradients& gradients = {}) {
  TestCluster cluster(config);
  const RealClock clock;
  Outcome outcome;
  outcome.passes.resize(config.workers());
  std::vector<absl::Status> results(config.workers());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < config.workers(); ++rank) {
    threads.emplace_back([&, rank] {
      auto trainer =
          Trainer::Create({.config = &cluster.config(),
                           .rank = rank,
                           .clock = &clock,
                           .addresses = cluster.addresses(),
                           .progress = {.output = stderr},
                           .create_backend = [&](const PlannedConfig&, const BackendOptions&)
                               -> absl::StatusOr<std::unique_ptr<ComputeBackend>> {
                             return std::make_unique<PullingBackend>(
                                 config.model(), rank, gradients, &outcome.passes[rank]);
                           }});
      if (!trainer.ok()) {
        results[rank] = trainer.status();
        return;
      }
      const auto summary = (*trainer)->Run();
      results[rank] = summary.status();
      if (rank == 0 && summary.ok()) outcome.bytes_in = summary->traffic.bytes_in;
    });
  }
  for (std::thread& thread : threads) thread.join();
  RequireAllOk(results);
  outcome.parameters = cluster.Parameters();
  outcome.limited.resize(config.workers());
  for (int shard = 0; shard < config.shards(); ++shard) {
    const ShardStats stats = cluster.server(shard).shard().Stats();
    for (const WorkerStats& worker : stats.worker()) {
      outcome.limited[worker.worker()] += worker.limited_pushes();
    }
  }
  return outcome;
}

// The inner optimizers, in double, from their papers.
struct Inner {
  bool is_adamw = false;
  double rate = 0.1;
  Values m = {}, v = {};
  int updates = 0;

  void Step(const Values& gradient, Values& w) {
    m.resize(w.size());
    v.resize(w.size());
    ++updates;
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i];
      if (!is_adamw) {
        w[i] -= rate * g;
        continue;
      }
      constexpr double kDecay = 0.01;
      w[i] *= 1 - rate * kDecay;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double mean = m[i] / (1 - std::pow(0.9, updates));
      const double square = v[i] / (1 - std::pow(0.999, updates));
      w[i] -= rate * mean / (std::sqrt(square) + 1e-8);
    }
  }
};

// Rounds what has become of `before` as exchange.update_encoding says, chunk by chunk. `residual`
// has what that has lost so far.
void RoundUpdates(const PlannedConfig& config, const Values& before, Values& after,
                  Values& residual) {
  for (const Chunk& chunk : config.plan().chunks()) {
    std::vector<float> change(chunk.size), sent(chunk.size);
    for (int64_t i = 0; i < chunk.size; ++i) {
      const int64_t at = chunk.model_offset + i;
      change[i] = static_cast<float>(after[at] - before[at] + residual[at]);
    }
    std::string data(EncodedBytes(config.AnswerEncoding(chunk), chunk.size), '\0');
    Encode(config.AnswerEncoding(chunk), change, data.data());
    Decode(config.AnswerEncoding(chunk), {{data.data(), data.size()}}, absl::MakeSpan(sent));
    for (int64_t i = 0; i < chunk.size; ++i) {
      const int64_t at = chunk.model_offset + i;
      residual[at] = double{change[i]} - sent[i];
      after[at] = before[at] + sent[i];
    }
  }
}

// Scales each chunk of what the workers' rounds have changed down, as update.max_norm says. `means`
// are those of the norms before, by chunk and rank.
void Limit(const PlannedConfig& config, std::vector<Values>& changes, std::vector<Values>& means) {
  means.resize(config.plan().chunks().size(), Values(changes.size()));
  for (const Chunk& chunk : config.plan().chunks()) {
    Values& of_chunk = means[chunk.id];
    Values known;
    std::copy_if(of_chunk.begin(), of_chunk.end(), std::back_inserter(known),
                 [](double mean) { return mean > 0; });
    std::sort(known.begin(), known.end());
    const double bound = known.empty()
                             ? std::numeric_limits<double>::infinity()
                             : config.proto().update().max_norm() * known[(known.size() - 1) / 2];
    for (size_t rank = 0; rank < changes.size(); ++rank) {
      double* const change = changes[rank].data() + chunk.model_offset;
      const double norm = std::sqrt(std::inner_product(change, change + chunk.size, change, 0.0));
      for (int64_t i = 0; norm > bound && i < chunk.size; ++i) change[i] *= bound / norm;
      const double noted = std::min(norm, bound);
      double& mean = of_chunk[rank];
      mean = mean == 0 ? noted : mean + (noted - mean) / 16;
    }
  }
}

// DiLoCo (Douillard et al. 2023, algorithm 1) and its streaming form (2025, algorithm 2), by all
// workers together and one element after another. `passes` has the iterations of each worker.
Values Reference(const PlannedConfig& config, const std::vector<std::vector<int64_t>>& passes,
                 const Gradients& gradients = {}) {
  const LocalSteps& local = config.proto().local();
  const OptimizerConfig& outer = config.proto().optimizer();
  const int64_t length = config.proto().training().iterations();
  const int64_t steps = local.steps();
  const std::vector<float> initial = TestCluster(config).Parameters();
  Values global(initial.begin(), initial.end());
  Values velocity(global.size()), residual(global.size());
  std::vector<Values> means;
  std::vector<Values> own(config.workers(), global);
  std::vector<Inner> inner(config.workers(),
                           {.is_adamw = local.optimizer().kind() == OptimizerConfig::ADAMW,
                            .rate = local.optimizer().learning_rate()});
  // By element: its fragment, or -1.
  std::vector<int> fragment_of(global.size(), -1);
  const auto fragments = FragmentsOf(config.model(), local.fragments());
  for (size_t f = 0; f < fragments.size(); ++f) {
    for (const int layer : fragments[f]) {
      const Layer& of = config.model().layers()[layer];
      for (int t = of.first_tensor; t < of.first_tensor + of.tensor_count; ++t) {
        const Tensor& tensor = config.model().tensors()[t];
        std::fill_n(fragment_of.begin() + tensor.offset, tensor.size, static_cast<int>(f));
      }
    }
  }
  std::vector<int64_t> used_at(fragments.size(), -1);  // when the answer is used; -1: never
  for (int64_t iteration = 0; iteration < length; ++iteration) {
    const int64_t end = std::min((iteration / steps + 1) * steps, length);
    for (size_t f = 0; f < fragments.size(); ++f) {
      if (used_at[f] != iteration) continue;
      for (Values& of_worker : own) {
        for (size_t i = 0; i < global.size(); ++i) {
          if (fragment_of[i] != static_cast<int>(f)) continue;
          of_worker[i] = local.mixing() * of_worker[i] + (1 - local.mixing()) * global[i];
        }
      }
    }
    for (int rank = 0; rank < config.workers(); ++rank) {
      if (std::count(passes[rank].begin(), passes[rank].end(), iteration) == 0) continue;
      const auto broken = gradients.broken.find(rank);
      if (broken != gradients.broken.end() &&
          std::count(broken->second.begin(), broken->second.end(), iteration) > 0) {
        continue;
      }
      Values gradient(global.size());
      for (size_t i = 0; i < gradient.size(); ++i) {
        if (fragment_of[i] < 0) continue;
        gradient[i] = gradients.Scale(rank, iteration) *
                      ((gradients.is_constant ? 0 : own[rank][i]) - Target(rank, iteration, i));
      }
      inner[rank].Step(gradient, own[rank]);
    }
    const int count = static_cast<int>(fragments.size());
    for (int f = 0; f < count; ++f) {
      const int64_t pushed_after =
          end == length ? end - 1 : end - steps + (f + 1) * steps / count - 1;
      if (iteration != pushed_after) continue;
      // Before the last push everything has been used.
      used_at[f] = std::min(iteration + 1 + local.overlap_steps(), length - 1);
      std::vector<Values> changes = own;
      for (Values& change : changes) {
        for (size_t i = 0; i < change.size(); ++i) change[i] = global[i] - change[i];
      }
      if (config.proto().update().max_norm() > 0) Limit(config, changes, means);
      Values mean(global.size());
      double weights = 0;
      for (int rank = 0; rank < config.workers(); ++rank) {
        double taken = 0;
        for (const int64_t pass : passes[rank]) {
          const auto broken = gradients.broken.find(rank);
          const bool counts = broken == gradients.broken.end() ||
                              std::count(broken->second.begin(), broken->second.end(), pass) == 0;
          if (pass / steps == iteration / steps && counts) ++taken;
        }
        if (count > 1) taken = 1;
        weights += taken;
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += taken * changes[rank][i];
      }
      const Values before = global;
      for (size_t i = 0; i < mean.size(); ++i) {
        if (fragment_of[i] != f) continue;
        const double g = mean[i] / weights;
        const double momentum = outer.kind() == OptimizerConfig::NESTEROV ? outer.momentum() : 0;
        velocity[i] = momentum * velocity[i] + g;
        global[i] -= outer.learning_rate() * (g + momentum * velocity[i]);
      }
      if (config.proto().exchange().has_update_encoding()) {
        RoundUpdates(config, before, global, residual);
      }
    }
  }
  return global;
}

double LargestDifference(const std::vector<float>& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  double largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::abs(actual[i] - expected[i]));
  }
  return largest;
}

constexpr double kRounding = 2e-5;

PlannedConfig LocalConfig(const std::string& local, std::vector<std::string> overrides = {}) {
  overrides.push_back(absl::StrCat("local={", local, "}"));
  return MustParse(kSmallConfig, overrides);
}

}  // namespace

TEST_CASE("rounds of local steps are those of DiLoCo") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  const std::string inner = GENERATE("kind: SGD learning_rate: 0.1",
                                     "kind: ADAMW learning_rate: 0.01 weight_decay: 0.01");
  const PlannedConfig config =
      LocalConfig("steps: 4 optimizer { " + inner + " }",
                  {"workers=3", "training={iterations: 14}", "exchange.schedule=" + schedule,
                   "update.deterministic=true"});
  CHECK(config.proto().optimizer().kind() == OptimizerConfig::NESTEROV);
  const Outcome outcome = Run(config);
  CHECK(LargestDifference(outcome.parameters, Reference(config, outcome.passes)) < kRounding);
  CHECK(Run(config).parameters == outcome.parameters);
  for (const std::vector<int64_t>& passes : outcome.passes) CHECK(passes.size() == 14);
}

TEST_CASE("updates that are rounded are the same at shards and workers, and lose nothing") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  const std::string local = "steps: 2 optimizer { kind: SGD learning_rate: 0.1 }";
  std::vector<std::string> overrides = {"workers=3", "training={iterations: 24}",
                                        "exchange.schedule=" + schedule,
                                        "exchange.update_encoding=INT8"};
  const PlannedConfig config = LocalConfig(local, overrides);
  const Outcome outcome = Run(config);
  // Where a value is between two steps of the encoding, double and float32 may round apart.
  CHECK(LargestDifference(outcome.parameters, Reference(config, outcome.passes)) < 5e-4);
  overrides.pop_back();
  const Outcome exact = Run(LocalConfig(local, overrides));
  const double lost =
      LargestDifference(outcome.parameters, {exact.parameters.begin(), exact.parameters.end()});
  CHECK(lost > 1e-6);
  CHECK(lost < 1e-2);
  // In the first of 12 rounds the answers are the parameters, since a worker cannot say that it has
  // those of version 0; then they are what the update has changed.
  uint64_t bytes = 0;
  for (const Chunk& chunk : config.plan().chunks()) {
    bytes += EncodedBytes(config.ParameterEncoding(chunk), chunk.size) +
             11 * EncodedBytes(config.AnswerEncoding(chunk), chunk.size);
  }
  CHECK(outcome.bytes_in == bytes);
}

TEST_CASE("what a round has changed is limited as a whole, whatever its steps count for") {
  const std::string schedule = GENERATE("BACKWARD", "FULL");
  const PlannedConfig config =
      LocalConfig("steps: 4 optimizer { kind: SGD learning_rate: 0.1 }",
                  {"workers=3", "training={iterations: 24}", "exchange.schedule=" + schedule,
                   "update={policy: SYNC max_norm: 2 non_finite: SKIP}"});
  // From the third round on worker 2's are limited; worker 0 has one step in the fourth.
  const Gradients gradients = {.broken = {{0, {12, 13, 15}}}, .huge_from = 8};
  const Outcome outcome = Run(config, gradients);
  CHECK(LargestDifference(outcome.parameters, Reference(config, outcome.passes, gradients)) <
        kRounding);
  CHECK(outcome.limited[2] == 4 * config.plan().chunks().size());
}

TEST_CASE("one worker with an outer rate of 1 trains as without local steps") {
  const PlannedConfig local = LocalConfig(
      "steps: 5 optimizer { kind: SGD learning_rate: 0.1 }",
      {"workers=1", "training={iterations: 15}", "optimizer={kind: SGD learning_rate: 1}"});
  const PlannedConfig plain = MustParse(kSmallConfig, {"workers=1", "training={iterations: 15}",
                                                       "optimizer={kind: SGD learning_rate: 0.1}"});
  const std::vector<float> expected = Run(plain).parameters;
  CHECK(LargestDifference(Run(local).parameters, {expected.begin(), expected.end()}) < kRounding);
  // Towards the targets, not away from them.
  const std::vector<float> initial = TestCluster(plain).Parameters();
  double before = 0, after = 0;
  for (size_t i = 0; i < initial.size(); ++i) {
    before += std::abs(initial[i]);
    after += std::abs(expected[i]);
  }
  CHECK(after < before);
}

TEST_CASE("fragments are exchanged in turn, and their answers are used later") {
  const std::string mixing = GENERATE("0", "0.5");
  const std::string overlap = GENERATE("0", "1");
  const std::string fragments = GENERATE("2", "3");
  const std::string schedule = GENERATE("BACKWARD", "FULL");
  // With 19 the last round ends before its predecessor's answers would be used.
  const std::string iterations = GENERATE("19", "20");
  const PlannedConfig config =
      LocalConfig(absl::StrCat("steps: 6 fragments: ", fragments, " overlap_steps: ", overlap,
                               " mixing: ", mixing, " optimizer { kind: SGD learning_rate: 0.1 }"),
                  {"workers=2", absl::StrCat("training={iterations: ", iterations, "}"),
                   "exchange.schedule=" + schedule, "optimizer.learning_rate=0.4"});
  const Outcome outcome = Run(config);
  CHECK(LargestDifference(outcome.parameters, Reference(config, outcome.passes)) < kRounding);
}

TEST_CASE("with local.seconds workers take the steps that they have time for") {
  const PlannedConfig config =
      LocalConfig("steps: 8 seconds: 0.2 optimizer { kind: SGD learning_rate: 0.1 }",
                  {"workers=2", "training={iterations: 24}"});
  // Worker 1 can take no more than three in a round, and worker 0 mostly more.
  const Gradients gradients = {.takes = {absl::Milliseconds(1), absl::Milliseconds(80)}};
  const Outcome outcome = Run(config, gradients);
  for (int round = 0; round < 3; ++round) {
    const auto in_round = [&](int64_t iteration) { return iteration / 8 == round; };
    const auto& slow = outcome.passes[1];
    CHECK(std::count_if(slow.begin(), slow.end(), in_round) >= 1);
    CHECK(std::count_if(slow.begin(), slow.end(), in_round) <= 3);
  }
  CHECK(LargestDifference(outcome.parameters, Reference(config, outcome.passes, gradients)) <
        kRounding);
}

TEST_CASE("a wait for slower workers takes nothing of the next round's time") {
  const std::string schedule = GENERATE("BACKWARD", "FULL");
  const PlannedConfig config =
      LocalConfig("steps: 4 seconds: 1.5 optimizer { kind: SGD learning_rate: 0.1 }",
                  {"workers=2", "training={iterations: 16}", "exchange.schedule=" + schedule});
  const Gradients gradients = {.takes = {absl::Milliseconds(1), absl::Milliseconds(1800)}};
  const Outcome outcome = Run(config, gradients);
  CHECK(outcome.passes[0].size() == 16);
  CHECK(outcome.passes[1].size() == 4);
  CHECK(LargestDifference(outcome.parameters, Reference(config, outcome.passes, gradients)) <
        kRounding);
}

TEST_CASE("under QUORUM a round that comes too late is dropped, and its worker goes on") {
  const std::string schedule = GENERATE("BACKWARD", "FULL");
  const UnixShards shards(2);
  std::vector<std::string> overrides = shards.overrides();
  for (const std::string& each :
       {std::string("workers=3"), std::string("training={iterations: 80}"),
        std::string("update={policy: QUORUM quorum: 2 grace: 0}"), "exchange.schedule=" + schedule,
        std::string("optimizer={kind: SGD learning_rate: 1}")}) {
    overrides.push_back(each);
  }
  const PlannedConfig config =
      LocalConfig("steps: 2 optimizer { kind: SGD learning_rate: 0.1 }", overrides);
  // Worker 2 is far slower than the others together.
  const Gradients gradients = {
      .takes = {absl::Milliseconds(1), absl::Milliseconds(1), absl::Milliseconds(60)}};
  const Outcome outcome = Run(config, gradients);
  CHECK(outcome.passes[0].size() + outcome.passes[1].size() > 80);
  CHECK(outcome.passes[2].size() < 80);
  for (const std::vector<int64_t>& passes : outcome.passes) {
    CHECK(std::is_sorted(passes.begin(), passes.end()));
  }
  double largest = 0;
  for (const float value : outcome.parameters) largest = std::max(largest, std::abs(double{value}));
  CHECK(largest < 1);
}

TEST_CASE("a step whose gradient is not finite is left out, and counts for nothing") {
  const PlannedConfig config =
      LocalConfig("steps: 4 optimizer { kind: SGD learning_rate: 0.1 }",
                  {"workers=2", "training={iterations: 16}", "update.non_finite=SKIP"});
  // Worker 1 has one good step in the first round, and none in the second.
  const Gradients gradients = {.broken = {{1, {0, 2, 3, 4, 5, 6, 7}}, {0, {1}}}};
  const Outcome outcome = Run(config, gradients);
  CHECK(LargestDifference(outcome.parameters, Reference(config, outcome.passes, gradients)) <
        kRounding);
}

TEST_CASE("Downpour: under ASYNC the shards add what the workers have added up") {
  // n_push = n_fetch = 3, with plain SGD in between and a rate of 1 for what is pushed.
  const PlannedConfig config =
      LocalConfig("steps: 3 optimizer { kind: SGD learning_rate: 0.1 }",
                  {"workers=3", "training={iterations: 9}", "update.policy=ASYNC",
                   "optimizer={kind: SGD learning_rate: 1}"});
  const Outcome outcome = Run(config, {.is_constant = true});
  const std::vector<float> initial = TestCluster(config).Parameters();
  Values expected(initial.begin(), initial.end());
  for (const Tensor& tensor : config.model().tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      for (int rank = 0; rank < 3; ++rank) {
        for (int iteration = 0; iteration < 9; ++iteration) {
          expected[i] += 0.1f * Target(rank, iteration, i);
        }
      }
    }
  }
  CHECK(LargestDifference(outcome.parameters, expected) < kRounding);
}

TEST_CASE("a worker that joins a run under way contributes nothing in its first round") {
  const PlannedConfig config =
      LocalConfig("steps: 2 optimizer { kind: ADAMW }", {"workers=1", "training={iterations: 16}"});
  const RealClock clock;
  std::vector<int64_t> asked;
  absl::Status result;
  const auto run = [&](PlayedExchange::Script script) {
    script.layers = {kLayers.begin(), kLayers.end()};
    WorkerSet alone;
    alone.add_rank(0);
    script.worker_sets = {alone};
    for (auto& [iteration, going_back] : script.returns) going_back.worker_sets = {alone};
    PlayedExchange::Log log;
    std::vector<int64_t> passes;
    const Gradients gradients;
    auto trainer = Trainer::Create(
        {.config = &config,
         .rank = 0,
         .clock = &clock,
         .progress = {.output = stderr},
         .create_backend = [&](const PlannedConfig&, const BackendOptions&)
             -> absl::StatusOr<std::unique_ptr<ComputeBackend>> {
           return std::make_unique<PullingBackend>(config.model(), 0, gradients, &passes);
         },
         .connect =
             [&](const Exchange::Options&) -> absl::StatusOr<std::unique_ptr<TrainingExchange>> {
           return std::make_unique<PlayedExchange>(script, &log);
         }});
    REQUIRE(trainer.ok());
    result = (*trainer)->Run().status();
    asked = log.asked;
    std::map<int64_t, bool> contributed;
    for (const auto& [iteration, kind] : log.kinds) contributed[iteration] = !kind.skip;
    return contributed;
  };
  using Contributed = std::map<int64_t, bool>;
  for (const std::string state : {"", "10"}) {
    CHECK(run({.start = 5, .state = state}) == Contributed{{5, false}, {6, true}, {7, true}});
    CHECK(asked == std::vector<int64_t>{5});
    CHECK(run({.start = 6, .state = state}) == Contributed{{6, false}, {7, true}});
    CHECK(result.ok());
  }
  // The others are where it has not yet been: in two exchanges more.
  CHECK(run({.start = 4, .state = "10", .others_at = 6}) ==
        Contributed{{4, false}, {5, false}, {6, false}, {7, true}});
  CHECK(asked == std::vector<int64_t>{4, 5, 6});
  run({.start = 6, .state = "ten"});
  CHECK(absl::IsInvalidArgument(result));
  CHECK_THAT(std::string(result.message()), Catch::Contains("\"ten\", expected the number"));
  // One that goes back has its optimizer still, and one that begins has no less than the others.
  CHECK(run({.start = 5, .returns = {{6, {.to = 3}}}}) ==
        Contributed{{3, true}, {4, true}, {5, true}, {6, true}, {7, true}});
  CHECK(run({.start = 5, .returns = {{5, {.to = 3}}}, .others_at = 6}) ==
        Contributed{{3, false}, {4, false}, {5, false}, {6, false}, {7, true}});
  const auto from_the_beginning = run({});
  CHECK(from_the_beginning.size() == 8);
  CHECK(std::all_of(from_the_beginning.begin(), from_the_beginning.end(),
                    [](const auto& each) { return each.second; }));
}

}  // namespace evenshard
