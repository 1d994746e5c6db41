#ifndef EVENSHARD_TESTS_WORKER_RING_CORE_RING_OF_ROUNDS_H_
#define EVENSHARD_TESTS_WORKER_RING_CORE_RING_OF_ROUNDS_H_

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/optimizer/norm_clipping.h"
#include "common/optimizer/tensor_optimizers.h"
#include "common/placement/model/initializer.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "common/wire/encoding.h"
#include "worker/ring/core/ring_part.h"
#include "worker/ring/core/ring_round.h"

namespace evenshard {

// Returns a config of a ring of `workers`.
inline PlannedConfig RingConfigOf(int workers, const std::string& model,
                                  const std::vector<std::string>& overrides = {}) {
  std::string text =
      absl::StrCat("model { ", model, " } topology: RING workers: ", workers,
                   " update { policy: SYNC } training { iterations: 1 } "
                   "compute { backend: EMULATED } limits { chunk_bytes: 256 connections: 2 } "
                   "ring { bucket_bytes: 4096 first_bucket_bytes: 1024");
  for (int rank = 0; rank < workers; ++rank) {
    absl::StrAppend(&text, " address: \"unix:ring", rank, "\"");
  }
  absl::StatusOr<PlannedConfig> config =
      PlannedConfig::Parse(absl::StrCat(text, " }"), "test.textproto", overrides);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  return *std::move(config);
}

// The model of SmallModel in a config.
inline constexpr char kSmallRingModel[] = R"(
  input { channels: 40 height: 1 width: 1 }
  layer { name: "fc1" linear { out_features: 50 } }
  layer { relu {} }
  layer { name: "fc2" linear { out_features: 30 } }
  layer { relu {} }
  layer { name: "fc3" linear { out_features: 10 } })";

inline std::vector<float> InitialOf(const PlannedConfig& config) {
  std::vector<float> parameters(config.model().buffer_size());
  for (const Tensor& tensor : config.model().tensors()) {
    InitializeParameters(1, tensor, 0, {parameters.data() + tensor.offset, size_t(tensor.size)});
  }
  return parameters;
}

inline std::vector<float> GradientOf(const PlannedConfig& config, int rank, int iteration) {
  std::vector<float> gradient(config.model().buffer_size());
  for (const Tensor& tensor : config.model().tensors()) {
    const CounterRandom random(rank * 1000 + iteration, tensor.name);
    for (int64_t i = 0; i < tensor.size; ++i) gradient[tensor.offset + i] = random.Normal(i);
  }
  return gradient;
}

// The rounds of all workers of a ring in one process. Messages travel when the test says so, each
// stream's in order, and are copied into pieces. A thread for each worker adds what is held.
class RingOfRounds {
 public:
  struct Worker {
    std::vector<float> gradients, parameters;
    std::unique_ptr<RingPart> part;
    std::unique_ptr<RingRound> round;
    std::thread held;
  };

  explicit RingOfRounds(PlannedConfig config, uint64_t first_iteration = 0)
      : config_(std::move(config)), plan_(PlanOfConfig(config_)), workers_(config_.workers()) {
    for (int rank = 0; rank < config_.workers(); ++rank) {
      Worker& worker = workers_[rank];
      worker.parameters = InitialOf(config_);
      absl::StatusOr<std::unique_ptr<RingPart>> part =
          RingPart::Create({.config = &config_, .plan = &plan_, .place = rank, .rank = rank});
      REQUIRE(part.ok());
      worker.part = *std::move(part);
      REQUIRE(worker.part->Start(absl::MakeSpan(worker.parameters)).ok());
      worker.round = std::make_unique<RingRound>(RingRound::Options{
          .config = &config_,
          .plan = &plan_,
          .part = worker.part.get(),
          .place = rank,
          .rank = rank,
          .first_iteration = first_iteration,
          .predecessor = absl::StrCat("worker ", (rank + workers() - 1) % workers()),
          .wake = [](RingWay, int) {},
          .on_parameters_written = [](int64_t, int64_t) {}});
      worker.held = std::thread([round = worker.round.get()] {
        while (round->ReduceHeld()) {
        }
      });
    }
  }
  ~RingOfRounds() {
    for (Worker& worker : workers_) {
      worker.round->EndHeld();
      worker.held.join();
    }
  }

  const PlannedConfig& config() const { return config_; }
  const RingPlan& plan() const { return plan_; }
  int workers() const { return config_.workers(); }
  Worker& worker(int rank) { return workers_[rank]; }

  // Begins an iteration at a worker with a test gradient, or as one that contributes nothing.
  absl::Status Begin(int rank, int iteration, const ExchangeKind& kind = {}) {
    Worker& worker = workers_[rank];
    // In place: the round still has the memory if it refuses to begin.
    const std::vector<float> gradient = GradientOf(config_, rank, iteration);
    worker.gradients.resize(gradient.size());
    std::copy(gradient.begin(), gradient.end(), worker.gradients.begin());
    return worker.round->Begin(kind, absl::MakeSpan(worker.gradients),
                               absl::MakeSpan(worker.parameters));
  }
  // Pushes all layers in backward order.
  absl::Status PushAll(int rank) {
    for (int layer = static_cast<int>(config_.model().layers().size()) - 1; layer >= 0; --layer) {
      if (config_.model().layers()[layer].tensor_count == 0) continue;
      if (const absl::Status pushed = workers_[rank].round->Push(layer); !pushed.ok()) {
        return pushed;
      }
    }
    return absl::OkStatus();
  }
  // Moves a message of a worker's stream to its successor. Returns whether there was one.
  bool Deliver(int rank, RingWay way, int stream) {
    const auto sent = workers_[rank].round->Take(way, stream);
    if (!sent.has_value()) return false;
    RingRound& to = *workers_[(rank + 1) % workers()].round;
    if (sent->segment == nullptr) {
      const auto* const bytes = reinterpret_cast<const char*>(sent->norm.data());
      to.TakeGathered({.header = {.iteration = sent->iteration, .chunk = sent->norm_chunk},
                       .data = Pieces({bytes, bytes + sizeof(sent->norm)})})
          .IgnoreError();
      workers_[rank].round->Sent();
      return true;
    }
    const RingSegment& segment = *sent->segment;
    const ExchangeConfig& exchange = config_.proto().exchange();
    auto bytes = std::make_shared<std::vector<char>>();
    if (way == RingWay::kReduce) {
      if (!sent->buffer.empty()) {
        const RingSums& sums = workers_[rank].round->sums();
        bytes->resize(EncodedBytes(sums.encoding(), segment.size));
        const absl::Status encoded =
            sums.encoding() == FLOAT32 && sent->is_own
                ? sums.Check(segment, static_cast<int64_t>(sent->iteration), sent->buffer)
                : absl::OkStatus();
        if (!encoded.ok()) {
          workers_[rank].round->Fail(encoded);
          return false;
        }
        Encode(sums.encoding(), sent->buffer.subspan(segment.begin, segment.size), bytes->data());
      }
      to.TakeReduced({.header = {.iteration = sent->iteration,
                                 .chunk = segment.id,
                                 .skip = sent->buffer.empty(),
                                 .encoding = exchange.gradient_encoding(),
                                 .weight = sent->weight},
                      .data = Pieces(*bytes)},
                     bytes)
          .IgnoreError();
    } else {
      if (!sent->buffer.empty()) {
        bytes->resize(EncodedBytes(exchange.parameter_encoding(), segment.size));
        Encode(exchange.parameter_encoding(), sent->buffer.subspan(segment.begin, segment.size),
               bytes->data());
      }
      to.TakeGathered({.header = {.iteration = sent->iteration,
                                  .chunk = segment.id,
                                  .encoding = exchange.parameter_encoding(),
                                  .unchanged = sent->buffer.empty()},
                       .data = Pieces(*bytes)})
          .IgnoreError();
    }
    workers_[rank].round->Sent();
    return true;
  }
  // Delivers from streams that are chosen at random, until every worker has all parameters or has
  // failed. Returns what the workers' waits returned, by rank.
  std::vector<absl::Status> DeliverAll(uint32_t seed) {
    std::vector<absl::Status> outcomes(workers(), absl::UnknownError("did not return"));
    std::atomic<int> waiting = workers();
    std::vector<std::thread> waits;
    for (int rank = 0; rank < workers(); ++rank) {
      waits.emplace_back([&, rank] {
        outcomes[rank] = workers_[rank].round->AwaitAll();
        --waiting;
      });
    }
    const CounterRandom random(seed, "order");
    for (uint64_t draw = 0; waiting > 0; draw += 3) {
      const auto rank = static_cast<int>(random.Below(draw, workers()));
      const auto way = static_cast<RingWay>(random.Below(draw + 1, 2));
      Deliver(rank, way, static_cast<int>(random.Below(draw + 2, 2)));
      // In a ring of processes the news of a failure travels; here one is everybody's.
      const absl::Status failure = workers_[rank].round->failure();
      for (Worker& worker : workers_) {
        if (!failure.ok()) worker.round->Fail(failure);
      }
    }
    for (std::thread& wait : waits) wait.join();
    return outcomes;
  }

 private:
  static RingPlan PlanOfConfig(const PlannedConfig& config) {
    absl::StatusOr<RingPlan> plan =
        RingPlan::Create(config.model(), RingPlan::OptionsOf(config.proto()));
    REQUIRE(plan.ok());
    return *std::move(plan);
  }
  // Cuts bytes into three pieces, of which the first ends within an element.
  static Segments Pieces(const std::vector<char>& bytes) {
    if (bytes.size() < 8) return {{bytes.data(), bytes.size()}};
    return {{bytes.data(), 3}, {bytes.data() + 3, 4}, {bytes.data() + 7, bytes.size() - 7}};
  }

  const PlannedConfig config_;
  const RingPlan plan_;
  std::vector<Worker> workers_;
};

inline void RequireOk(const std::vector<absl::Status>& outcomes) {
  for (const absl::Status& outcome : outcomes) {
    INFO(outcome.ToString());
    REQUIRE(outcome.ok());
  }
}

// Runs an iteration of all workers, whose weights are given by rank; 0 does not contribute.
inline void RunIteration(RingOfRounds& ring, int iteration, const std::vector<float>& weights,
                         uint32_t seed) {
  for (int rank = 0; rank < ring.workers(); ++rank) {
    const bool skip = weights[rank] == 0;
    REQUIRE(ring.Begin(rank, iteration, {.skip = skip, .weight = skip ? 1 : weights[rank]}).ok());
    REQUIRE(ring.PushAll(rank).ok());
  }
  RequireOk(ring.DeliverAll(seed));
}

inline void RequireSame(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  REQUIRE(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// What the parameters must be: sums in the order of the ring, and the optimizer on each segment.
class RingReference {
 public:
  RingReference(const PlannedConfig* config, const RingPlan* plan)
      : config_(*config),
        plan_(*plan),
        optimizers_(config->proto().optimizer(), config->proto().update().clip_value(),
                    config->model()),
        parameters_(InitialOf(*config)),
        slots_(kMaxSlots, std::vector<float>(parameters_.size())) {}

  // `weights` are by rank, 0 for one that does not contribute.
  void Update(int iteration, const std::vector<float>& weights) {
    const int workers = config_.workers();
    std::vector<std::vector<float>> gradients;
    float total = 0;
    for (int rank = 0; rank < workers; ++rank) {
      gradients.push_back(GradientOf(config_, rank, iteration));
      total += weights[rank];
    }
    if (total == 0) return;
    ++steps_;
    std::vector<float> sums(parameters_.size());
    for (const RingSegment& segment : plan_.segments()) {
      std::vector<float> sum(segment.size);
      bool is_empty = true;
      for (int i = 1; i <= workers; ++i) {
        const int rank = (segment.part + i) % workers;
        if (weights[rank] == 0) continue;
        for (int64_t j = 0; j < segment.size; ++j) {
          const float own = gradients[rank][segment.begin + j];
          sum[j] = is_empty ? own : own + sum[j];
        }
        is_empty = false;
      }
      std::copy(sum.begin(), sum.end(), sums.begin() + segment.begin);
    }
    const float coefficient = CoefficientOf(sums, 1 / total);
    for (const RingSegment& segment : plan_.segments()) {
      Apply(segment, sums, 1 / total, coefficient, iteration);
    }
  }
  const std::vector<float>& parameters() const { return parameters_; }
  // How many updates were clipped.
  int clipped() const { return clipped_; }

 private:
  float CoefficientOf(const std::vector<float>& sums, float scale) {
    const double limit = config_.proto().update().clip_global_norm();
    if (limit == 0) return 1;
    const SquareRule rule = NormRuleOf(limit, config_.model());
    SquareSum squares;
    for (const Tensor& tensor : config_.model().tensors()) {
      if (tensor.role != TensorRole::kParameter) continue;
      REQUIRE(rule.Add(sums.data() + tensor.offset, tensor.size, scale, &squares));
    }
    const float coefficient = ClipCoefficient(limit, rule.Value(squares));
    clipped_ += coefficient < 1 ? 1 : 0;
    return coefficient;
  }

  void Apply(const RingSegment& segment, const std::vector<float>& sums, float scale,
             float coefficient, int iteration) {
    for (size_t i = 0; i < config_.model().tensors().size(); ++i) {
      const Tensor& tensor = config_.model().tensors()[i];
      const int64_t begin = std::max(tensor.offset, segment.begin);
      const int64_t end = std::min(tensor.offset + tensor.size, segment.begin + segment.size);
      if (begin >= end) continue;
      const Optimizer& optimizer = optimizers_.Of(static_cast<int>(i));
      OptimizerSpan span{{parameters_.data() + begin, size_t(end - begin)}};
      for (int slot = 0; slot < optimizer.slots(); ++slot) {
        span.slots[slot] = slots_[slot].data() + begin;
      }
      const bool is_clipped = tensor.role == TensorRole::kParameter;
      optimizer.Apply(span, sums.data() + begin, is_clipped ? scale * coefficient : scale,
                      optimizer.NumbersOf(iteration), steps_);
    }
  }

  const PlannedConfig& config_;
  const RingPlan& plan_;
  const TensorOptimizers optimizers_;
  std::vector<float> parameters_;
  std::vector<std::vector<float>> slots_;
  int64_t steps_ = 0;
  int clipped_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_RING_CORE_RING_OF_ROUNDS_H_
