#include "worker/training/trainer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/testing/await.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/cluster.h"
#include "tests/worker/training/whole_workers.h"
#include "worker/training/gradient_norm.h"

namespace evenshard {
namespace {

using Catch::Contains;

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
  CHECK(absl::AbsDuration(absl::Now() - summary.began) < absl::Hours(1));
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
