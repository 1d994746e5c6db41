#include "worker/training/trainer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tests/testing/captured_log.h"
#include "tests/testing/cluster.h"
#include "tests/testing/scratch_folder.h"
#include "worker/compute/backend.h"
#include "worker/training/gradient_norm.h"

namespace evenshard {
namespace {

using Catch::Contains;

// A small network on the shipped digits, with two shards.
constexpr char kDigits[] = R"(
  model {
    input { channels: 1 height: 8 width: 8 }
    layer { name: "fc1" linear { out_features: 20 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 10 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  shard { address: "127.0.0.1:0" }
  update { policy: SYNC }
  optimizer { kind: SGD learning_rate: 0.1 }
  training { batch_size: 8 iterations: 10 }
  data {
    idx { images: "data/digits/images.idx3-ubyte.gz" labels: "data/digits/labels.idx1-ubyte.gz" }
    holdout: 0.2
  }
  compute { threads: 1 }
  limits { chunk_bytes: 1024 startup_seconds: 20 exchange_seconds: 60 }
)";

using Result = absl::StatusOr<TrainingSummary>;

std::unique_ptr<Trainer> MustCreate(const TestCluster& cluster, int rank, const Clock& clock) {
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = rank,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .progress = {.output = stderr}});
  INFO(trainer.status().ToString());
  REQUIRE(trainer.ok());
  return *std::move(trainer);
}

// Runs every worker of the cluster on a thread.
std::vector<Result> RunAll(const TestCluster& cluster) {
  const RealClock clock;
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int rank = 0; rank < cluster.config().workers(); ++rank) {
    trainers.push_back(MustCreate(cluster, rank, clock));
  }
  std::vector<Result> results(trainers.size(), Result(absl::UnknownError("did not run")));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < trainers.size(); ++rank) {
    threads.emplace_back([&, rank] { results[rank] = trainers[rank]->Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void RequireAllOk(const std::vector<Result>& results) {
  for (const Result& result : results) {
    INFO(result.status().ToString());
    REQUIRE(result.ok());
  }
}

// A second of it takes a millisecond.
class HurriedClock final : public Clock {
 public:
  absl::Time Now() const override { return start_ + kHurry * (real_.Now() - start_); }
  bool SleepUntil(absl::Time deadline, const std::stop_token& stop) const override {
    return real_.SleepUntil(start_ + (deadline - start_) / kHurry, stop);
  }

 private:
  static constexpr int64_t kHurry = 1000;

  const RealClock real_;
  const absl::Time start_ = real_.Now();
};

// Gradients are 0, or NaN at some iterations; so are losses at some.
struct Divergence {
  std::set<int64_t> gradients = {};
  std::set<int64_t> losses = {};
};

class DivergingBackend final : public ComputeBackend {
 public:
  explicit DivergingBackend(Divergence divergence) : divergence_(std::move(divergence)) {}

  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients,
                                              LayerHooks& hooks) override {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    gradients[0] = divergence_.gradients.count(iteration) > 0 ? kNan : 0;
    return BatchResult{.loss = divergence_.losses.count(iteration) > 0 ? kNan : 1};
  }
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch, absl::Span<const float>) override {
    return BatchResult{.loss = 1};
  }

 private:
  const Divergence divergence_;
};

// Runs one worker whose gradients and losses are not finite at some of 10 iterations.
Result RunDiverging(const TestCluster& cluster, const Divergence& divergence) {
  const RealClock clock;
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = 0,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .create_backend = [&](const PlannedConfig&, const BackendOptions&)
                                      -> absl::StatusOr<std::unique_ptr<ComputeBackend>> {
                                    return std::make_unique<DivergingBackend>(divergence);
                                  }});
  REQUIRE(trainer.ok());
  return (*trainer)->Run();
}

std::string Message(const Result& result) { return std::string(result.status().message()); }

}  // namespace

TEST_CASE("SYNC with 4 workers trains as one process on the 4 batches together") {
  TestCluster four(MustParse(kDigits, {"workers=4"}));
  RequireAllOk(RunAll(four));
  TestCluster one(MustParse(kDigits, {"workers=1", "training.batch_size=32"}));
  RequireAllOk(RunAll(one));
  const std::vector<float> actual = four.Parameters();
  const std::vector<float> expected = one.Parameters();
  double largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    largest = std::max<double>(largest, std::abs(actual[i] - expected[i]));
  }
  CHECK(largest < 1e-5);
  const std::vector<float> start = TestCluster(MustParse(kDigits)).Parameters();
  CHECK(start != actual);
}

TEST_CASE("rank 0 evaluates, and its summary holds the run's figures") {
  TestCluster cluster(MustParse(kDigits, {"workers=2", "training={epochs: 8 batch_size: 16}",
                                          "optimizer={kind: MOMENTUM learning_rate: 0.05}"}));
  const std::vector<Result> results = RunAll(cluster);
  RequireAllOk(results);
  const TrainingSummary& summary = *results[0];
  REQUIRE(summary.final_accuracy.has_value());
  CHECK(*summary.final_accuracy > 0.9);
  CHECK_FALSE(results[1]->final_accuracy.has_value());
  const int64_t iterations = 8 * (1438 / 2 / 16);
  CHECK(summary.iterations == iterations);
  CHECK(summary.skipped_iterations == 0);
  CHECK(summary.traffic.bytes_out ==
        iterations * cluster.config().model().parameter_count() * sizeof(float));
  CHECK(summary.images_per_second > 0);
  CHECK(summary.compute_seconds + summary.exchange_wait_seconds <= summary.seconds);
  CHECK_THAT(summary.ToJson(), Contains("\"iterations\":352") && Contains("\"final_accuracy\":") &&
                                   Contains("\"evaluations\":[{\"iterations\":352,"));
  CHECK_THAT(results[1]->ToJson(), !Contains("final_accuracy"));
}

TEST_CASE("threads that read ahead change nothing in a run or its evaluation") {
  const auto run = [](const std::string& threads) {
    TestCluster cluster(MustParse(
        kDigits, {"workers=2", "training={epochs: 3 batch_size: 16 evaluate_every_epochs: 1}",
                  "data.augment={crop_padding: 1}", "update.deterministic=true",
                  "data.threads=" + threads}));
    const std::vector<Result> results = RunAll(cluster);
    RequireAllOk(results);
    return std::pair(cluster.Parameters(), results[0]->final_accuracy);
  };
  const auto expected = run("0");
  REQUIRE(expected.second.has_value());
  CHECK(run("3") == expected);
}

TEST_CASE("the summary has each evaluation, with the training before it") {
  const auto evaluated_after = [](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {
        "training={iterations: 10 batch_size: 16 "
        "evaluate_every_iterations: 4}"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    TestCluster cluster(MustParse(kDigits, all));
    const std::vector<Result> results = RunAll(cluster);
    RequireAllOk(results);
    const TrainingSummary& summary = *results[0];
    std::vector<int64_t> iterations;
    double seconds = 0;
    for (const TrainingSummary::Evaluation& each : summary.evaluations) {
      CHECK(each.seconds > seconds);
      seconds = each.seconds;
      iterations.push_back(each.iterations);
    }
    CHECK(seconds == summary.seconds);
    CHECK(summary.evaluations.back().accuracy == summary.final_accuracy);
    CHECK(results[1]->evaluations.empty());
    return iterations;
  };
  CHECK(evaluated_after({"workers=2"}) == std::vector<int64_t>{4, 8, 10});
  // The rounds end after 3, 6, 9 and 10.
  CHECK(evaluated_after({"workers=2", "optimizer={kind: SGD learning_rate: 1}",
                         "local={steps: 3 optimizer {kind: SGD learning_rate: 0.1}}"}) ==
        std::vector<int64_t>{6, 9, 10});
}

TEST_CASE("an accuracy below the required one is an error") {
  TestCluster cluster(
      MustParse(kDigits, {"training.iterations=1", "training.required_accuracy=0.9"}));
  const std::vector<Result> results = RunAll(cluster);
  CHECK(absl::IsFailedPrecondition(results[0].status()));
  CHECK_THAT(Message(results[0]), Contains("is below training.required_accuracy, 0.9000"));
}

TEST_CASE("REJECT: a gradient that is not finite ends the run and is named") {
  TestCluster cluster(MustParse(kDigits, {"workers=2", "optimizer.learning_rate=1e30"}));
  for (const Result& result : RunAll(cluster)) {
    CHECK_THAT(Message(result), Contains("pushed a gradient that is not finite at iteration"));
  }
}

TEST_CASE("SKIP: gradients that are not finite are left out, counted, and warned of") {
  TestCluster cluster(MustParse(kDigits, {"workers=1", "update.non_finite=SKIP"}));
  const CapturedLog log;
  const Result result = RunDiverging(cluster, {.gradients = {1, 3, 4, 5, 8}});
  RequireAllOk({result});
  CHECK(result->iterations == 10);
  CHECK(result->skipped_iterations == 5);
  for (int shard = 0; shard < 2; ++shard) {
    const ShardStats stats = cluster.server(shard).shard().Stats();
    CHECK(stats.skipped_pushes() == 5 * stats.chunks());
  }
  // The first one, and whenever their number has doubled.
  const std::string text = log.text();
  CHECK_THAT(text, Contains("warning: iteration 1: the gradient is not finite and is left out "
                            "(update.non_finite: SKIP): 1 of 2 so far") &&
                       Contains(": 2 of 4 so far") && Contains(": 4 of 6 so far"));
  CHECK_THAT(text, !Contains(": 3 of") && !Contains(": 5 of"));
}

TEST_CASE("SKIP: a worker that left out more than half of its gradients fails") {
  TestCluster cluster(MustParse(kDigits, {"workers=1", "update.non_finite=SKIP"}));
  const Result result = RunDiverging(cluster, {.gradients = {0, 1, 2, 3, 4, 5}});
  CHECK(result.status() ==
        absl::FailedPreconditionError("the training has diverged: 6 of 10 gradients were not "
                                      "finite and were left out"));
  CHECK_THAT(cluster.server(0).shard().Stats().failure(), Contains("6 of 10 gradients"));
}

TEST_CASE("SKIP: a run that diverges fails, and its parameters stay what they were") {
  TestCluster cluster(
      MustParse(kDigits, {"workers=2", "optimizer.learning_rate=1e30", "update.non_finite=SKIP"}));
  for (const Result& result : RunAll(cluster)) {
    CHECK_THAT(Message(result), Contains("gradients were not finite and were left out"));
  }
  for (const float parameter : cluster.Parameters()) REQUIRE_FALSE(std::isnan(parameter));
}

TEST_CASE("a loss that is not finite is warned of, first and whenever their number has doubled") {
  TestCluster cluster(MustParse(kDigits, {"workers=1"}));
  const CapturedLog log;
  RequireAllOk({RunDiverging(cluster, {.losses = {2, 3, 4}})});
  const std::string text = log.text();
  CHECK_THAT(text, Contains("warning: iteration 2: the loss is nan: 1 of 3 so far") &&
                       Contains("iteration 3: the loss is nan: 2 of 4 so far") &&
                       !Contains("iteration 4: the loss"));
}

TEST_CASE("SKIP: a gradient that is finite but beyond the range of float16 is left out too") {
  for (const std::string encoding : {"FLOAT16", "BFLOAT16"}) {
    CAPTURE(encoding);
    TestCluster cluster(
        MustParse(kDigits, {"workers=1", "optimizer.learning_rate=1e8", "update.non_finite=SKIP",
                            "training.iterations=3", "exchange.gradient_encoding=" + encoding}));
    const Result result = RunAll(cluster)[0];
    CHECK(result.ok() == (encoding == "BFLOAT16"));
    CHECK((cluster.server(0).shard().Stats().skipped_pushes() > 0) == (encoding == "FLOAT16"));
    for (const float parameter : cluster.Parameters()) REQUIRE(std::isfinite(parameter));
  }
}

// Shards that agree on a norm cannot have port 0.
const std::string kOneShard = "shard=[{address: '127.0.0.1:0'}]";

TEST_CASE("the gradient is clipped to its global norm, by the shard or under ASYNC by the worker") {
  const std::string policy = GENERATE("SYNC", "ASYNC");
  TestCluster cluster(MustParse(
      kDigits, {kOneShard, "workers=1", "update.policy=" + policy, "training.iterations=1",
                "optimizer.learning_rate=1", "update.clip_global_norm=0.01"}));
  std::vector<float> change = cluster.Parameters();
  RequireAllOk(RunAll(cluster));
  const std::vector<float> after = cluster.Parameters();
  for (size_t i = 0; i < change.size(); ++i) change[i] -= after[i];
  CHECK(GlobalNorm(change) == Approx(0.01).epsilon(1e-3));
}

TEST_CASE("the clipped norm is that of the parameters; running statistics are left alone") {
  const std::string model = R"(model={ input { channels: 1 height: 8 width: 8 }
                                       layer { name: "c" conv { out_channels: 4 kernel: 3 } }
                                       layer { name: "n" batch_norm {} }
                                       layer { name: "f" linear { out_features: 10 } } })";
  const std::string policy = GENERATE("SYNC", "ASYNC");
  // The change of the parameters, and that of the statistics.
  const auto changes = [&](const std::string& clip) {
    TestCluster cluster(MustParse(
        kDigits, {model, kOneShard, "workers=1", "update.policy=" + policy, "training.iterations=1",
                  "optimizer.learning_rate=1", "update.clip_global_norm=" + clip}));
    const std::vector<float> before = cluster.Parameters();
    RequireAllOk(RunAll(cluster));
    const std::vector<float> after = cluster.Parameters();
    std::pair<std::vector<float>, std::vector<float>> changes;
    for (const Tensor& tensor : cluster.config().model().tensors()) {
      auto& change = tensor.role == TensorRole::kParameter ? changes.first : changes.second;
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
        change.push_back(before[i] - after[i]);
      }
    }
    return changes;
  };
  const auto clipped = changes("0.01");
  const auto whole = changes("0");
  CHECK(GlobalNorm(clipped.first) == Approx(0.01).epsilon(1e-3));
  CHECK(GlobalNorm(whole.first) > 0.1);
  CHECK(clipped.second == whole.second);
  CHECK(GlobalNorm(whole.second) > 0.02);
}

TEST_CASE("the times of a run add up under every schedule") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  TestCluster cluster(MustParse(kDigits, {"workers=2", "exchange.schedule=" + schedule}));
  const std::vector<Result> results = RunAll(cluster);
  RequireAllOk(results);
  for (const Result& result : results) {
    REQUIRE(result->iteration_seconds.size() == 10);
    double sum = 0;
    for (const double seconds : result->iteration_seconds) sum += seconds;
    CHECK(result->seconds == Approx(sum));
    CHECK(result->compute_seconds > 0);
    CHECK(result->exchange_wait_seconds > 0);
    // What is left is for loading the data.
    CHECK(result->compute_seconds + result->exchange_wait_seconds <= result->seconds);
    const std::string json = result->ToJson();
    const size_t list = json.find("\"iteration_seconds\":[");
    REQUIRE(list != std::string::npos);
    CHECK(std::count(json.begin() + list, json.end(), ',') == 9);
    CHECK_THAT(json, Catch::EndsWith("]}\n"));
  }
}

TEST_CASE("a trace shows each layer's computation, wait, push and pull under every schedule") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  CAPTURE(schedule);
  const ScratchFolder folder;
  TestCluster cluster(
      MustParse(kDigits, {"workers=1", "training.iterations=3", "exchange.schedule=" + schedule}));
  const RealClock clock;
  auto trace = Trace::Create(folder.Path("trace"), /*rank=*/0, &cluster.config().model(), &clock);
  REQUIRE(trace.ok());
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = 0,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .trace = trace->get()});
  REQUIRE(trainer.ok());
  RequireAllOk({(*trainer)->Run()});
  REQUIRE((*trace)->Close().ok());

  std::map<std::string, int> spans;               // of the thread that trains, by name
  std::map<std::string, std::vector<double>> on;  // begins and ends beside it, by name
  double end = 0;
  for (const nlohmann::json& event : nlohmann::json::parse(folder.Read("trace"))) {
    const std::string phase = event.at("ph");
    if (phase == "M") continue;
    CAPTURE(event.dump());
    const std::string name = event.at("name");
    const int64_t iteration = event.at("args").at("iteration");
    CHECK(iteration >= 0);
    CHECK(iteration < 3);
    if (phase != "X") {
      CHECK(phase == (on[name].size() % 2 == 0 ? "b" : "e"));
      on[name].push_back(event.at("ts"));
      continue;
    }
    ++spans[name];
    CHECK(event.at("dur") >= 0);
    if (name == "load the batch") continue;  // told when its iteration is over
    CHECK(event.at("ts") >= end - 1);        // as exact as a double is
    end = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  CHECK(spans == std::map<std::string, int>{{"load the batch", 3},
                                            {"wait fc1", 3},
                                            {"forward fc1", 3},
                                            {"wait fc2", 3},
                                            {"forward, loss and backward fc2", 3},
                                            {"backward fc1", 3},
                                            {"wait for the exchange", 3}});
  for (const std::string layer : {"fc1", "fc2"}) {
    CAPTURE(layer);
    const std::vector<double>& push = on["push " + layer];
    const std::vector<double>& pull = on["pull " + layer];
    REQUIRE(push.size() == 6);
    REQUIRE(pull.size() == 6);
    for (const auto& times : {push, pull}) CHECK(std::is_sorted(times.begin(), times.end()));
    CHECK(push.front() <= pull.front());
  }
}

TEST_CASE("a trace that cannot be written is an error") {
  const PlannedConfig config = MustParse(kDigits, {"workers=1"});
  const RealClock clock;
  const auto trace = Trace::Create("/nowhere/trace", 0, &config.model(), &clock);
  CHECK(absl::IsNotFound(trace.status()));
  CHECK_THAT(std::string(trace.status().message()), Contains("cannot write /nowhere/trace"));
}

TEST_CASE("a trace on a full disk says so in the end, however early the disk was full") {
  const int events = GENERATE(0, 1, 10'000);
  const PlannedConfig config = MustParse(kDigits, {"workers=1"});
  const RealClock clock;
  const auto trace = Trace::Create("/dev/full", 0, &config.model(), &clock);
  REQUIRE(trace.ok());
  for (int i = 0; i < events; ++i) (*trace)->Begin("push", /*layer=*/0, i);
  errno = 0;  // whatever happens in the process since
  const absl::Status closed = (*trace)->Close();
  CHECK(absl::IsResourceExhausted(closed));
  CHECK_THAT(std::string(closed.message()),
             Contains("cannot write /dev/full: No space left on device"));
}

TEST_CASE("a stopped worker leaves with the reason, and the others hear it") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  TestCluster cluster(MustParse(kDigits, {"workers=2", "exchange.schedule=" + schedule}));
  const RealClock clock;
  const auto stopped = MustCreate(cluster, 0, clock);
  Result result = absl::UnknownError("did not run");
  std::thread thread([&] { result = stopped->Run(); });  // waits for worker 1 for ever
  while (cluster.server(0).shard().Stats().worker(0).pushes() == 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  stopped->Stop(absl::CancelledError("stopped by Terminated"));
  thread.join();
  CHECK(absl::IsCancelled(result.status()));
  CHECK(Message(result) == "stopped by Terminated");
  const auto other = MustCreate(cluster, 1, clock);
  CHECK_THAT(Message(other->Run()), Contains("worker 0 gave up: stopped by Terminated"));
}

TEST_CASE("a worker that waits for another says so in its log and on its progress line") {
  TestCluster cluster(
      MustParse(kDigits, {"workers=2", "training.iterations=1", "limits.startup_seconds=604800",
                          "limits.exchange_seconds=604800"}));
  const CapturedLog log;
  const HurriedClock clock;
  char* shown = nullptr;
  size_t size = 0;
  std::FILE* const output = open_memstream(&shown, &size);
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = 0,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .progress = {.output = output}});
  REQUIRE(trainer.ok());
  Result result = absl::UnknownError("did not run");
  std::thread thread([&] { result = (*trainer)->Run(); });
  const std::string waits = "warning: iteration 0 has waited ";
  AwaitTrue([&] {  // the third time, after 12 s of its clock; the progress line comes every 5 s
    const std::vector<std::string> parts = absl::StrSplit(log.text(), waits);
    return parts.size() >= 4;
  });
  const RealClock real;
  const Result other = MustCreate(cluster, 1, real)->Run();
  thread.join();
  RequireAllOk({result, other});
  std::fclose(output);
  const std::string lines(shown, size);
  free(shown);
  CHECK_THAT(log.text(), Contains("shard 0 (" + cluster.addresses()[0] + ") has not "));
  CHECK_THAT(lines, Contains("epoch 1/1  iteration 0/1  waits ") &&
                        Contains("s: shard 0 (" + cluster.addresses()[0] + ") has not ") &&
                        Contains("epoch 1/1  iteration 1/1  loss "));
}

TEST_CASE("a worker that waits for a shard can be stopped") {
  std::string address;
  {
    TestCluster gone(MustParse(kDigits, {"workers=1"}));
    address = gone.addresses()[1];
  }
  const PlannedConfig config = MustParse(kDigits, {"workers=1", "limits.startup_seconds=3600"});
  const RealClock clock;
  const auto trainer = Trainer::Create(
      {.config = &config, .rank = 0, .clock = &clock, .addresses = {address, address}});
  REQUIRE(trainer.ok());
  Result result = absl::UnknownError("did not run");
  std::thread thread([&] { result = (*trainer)->Run(); });
  (*trainer)->Stop(absl::CancelledError("stopped by Interrupt"));
  thread.join();
  CHECK(Message(result) == "stopped by Interrupt");
}

TEST_CASE("a rank that the config does not have is refused") {
  const PlannedConfig config = MustParse(kDigits, {"workers=2"});
  const RealClock clock;
  const auto trainer = Trainer::Create({.config = &config, .rank = 2, .clock = &clock});
  CHECK(absl::IsOutOfRange(trainer.status()));
}

TEST_CASE("the global norm is finite if and only if every element is") {
  std::vector<float> values(1001, 3e38f);
  CHECK(GlobalNorm(values) == Approx(3e38 * std::sqrt(1001.0)));
  for (const size_t place : {0u, 500u, 1000u}) {
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      std::vector<float> with_bad = values;
      with_bad[place] = bad;
      CHECK_FALSE(std::isfinite(GlobalNorm(with_bad)));
    }
  }
}

}  // namespace evenshard
