// A trainer whose run changes its worker set, or goes back to a checkpoint.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/cluster.h"
#include "tests/worker/training/played_exchange.h"
#include "worker/data/order/batch_order.h"
#include "worker/training/local_rounds.h"
#include "worker/training/trainer.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr int kBatch = 8;
constexpr int kImages = 80;  // to train on: three iterations of three workers, and 8 images left

// 3 workers.
constexpr char kConfig[] = R"(
  model {
    input { channels: 1 height: 4 width: 4 }
    layer { name: "fc1" linear { out_features: 5 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 4 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  workers: 3
  update { policy: SYNC }
  training { batch_size: 8 iterations: 12 }
  data { synthetic { images: 100 } holdout: 0.2 augment { flip: true } }
)";
const std::vector<int> kLayers = {0, 2};  // with tensors

using Images = std::vector<float>;

struct Pass {
  int64_t iteration = 0;
  Images images;
  bool completed = false;
};

// Records the passes. If it is `asynchronous`, it computes on copies of batches, as a device does.
class RecordingBackend final : public ComputeBackend {
 public:
  // So many of the images that are evaluated first are taken for something else.
  RecordingBackend(bool asynchronous, std::vector<Pass>* passes, int* evaluated, int wrong = 0)
      : asynchronous_(asynchronous), passes_(*passes), evaluated_(*evaluated), wrong_(wrong) {}

  void Prefetch(const Batch& next) override {
    REQUIRE(asynchronous_);
    prefetched_ = next.images;
    copy_.assign(next.images.begin(), next.images.end());
  }

  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch, absl::Span<const float>,
                                              int64_t iteration, absl::Span<float>,
                                              LayerHooks& hooks) override {
    Images images(batch.images.begin(), batch.images.end());
    if (batch.images.data() == prefetched_.data()) images = copy_;
    prefetched_ = {};
    passes_.push_back({iteration, images});
    absl::Status status;
    for (const int layer : kLayers) status.Update(hooks.AwaitParameters(layer));
    if (!status.ok()) return status;
    if (asynchronous_) hooks.PassQueued();
    for (auto layer = kLayers.rbegin(); layer != kLayers.rend(); ++layer) {
      status.Update(hooks.GradientReady(*layer));
    }
    if (!status.ok()) return status;
    passes_.back().completed = true;
    return BatchResult{.loss = 1};
  }

  absl::StatusOr<BatchResult> Evaluate(const Batch& batch, absl::Span<const float>) override {
    evaluated_ += static_cast<int>(batch.size);
    const int wrong = std::min(wrong_, static_cast<int>(batch.size));
    wrong_ -= wrong;
    return BatchResult{.loss = 1, .correct = batch.size - wrong};
  }

 private:
  const bool asynchronous_;
  std::vector<Pass>& passes_;
  int& evaluated_;
  int wrong_;
  absl::Span<const float> prefetched_;
  Images copy_;
};

struct Outcome {
  absl::StatusOr<TrainingSummary> summary = absl::UnknownError("did not run");
  PlayedExchange::Log exchange;
  std::vector<Pass> passes;
  int evaluated = 0;  // images
  std::string log;
};

struct Setting {
  std::string schedule = "FULL";
  bool asynchronous = false;
  int threads = 0;
  int rank = 0;
  std::vector<std::string> overrides = {};
  int wrong = 0;  // images, see RecordingBackend
};

PlannedConfig ConfigOf(const Setting& setting) {
  std::vector<std::string> overrides = setting.overrides;
  overrides.push_back("exchange.schedule=" + setting.schedule);
  overrides.push_back(absl::StrCat("data.threads=", setting.threads));
  return MustParse(kConfig, overrides);
}

Outcome RunOne(const Setting& setting, PlayedExchange::Script script) {
  const PlannedConfig config = ConfigOf(setting);
  const RealClock clock;
  const CapturedLog log;
  Outcome outcome;
  script.layers = {kLayers.begin(), kLayers.end()};
  auto trainer = Trainer::Create(
      {.config = &config,
       .rank = setting.rank,
       .clock = &clock,
       .progress = {.output = stderr},
       .create_backend = [&](const PlannedConfig&, const BackendOptions&)
           -> absl::StatusOr<std::unique_ptr<ComputeBackend>> {
         return std::make_unique<RecordingBackend>(setting.asynchronous, &outcome.passes,
                                                   &outcome.evaluated, setting.wrong);
       },
       .connect =
           [&](const Exchange::Options&) -> absl::StatusOr<std::unique_ptr<TrainingExchange>> {
         return std::make_unique<PlayedExchange>(script, &outcome.exchange);
       }});
  INFO(trainer.status().ToString());
  REQUIRE(trainer.ok());
  outcome.summary = (*trainer)->Run();
  outcome.log = log.text();
  return outcome;
}

void RequireOk(const Outcome& outcome) {
  INFO(outcome.summary.status().ToString());
  REQUIRE(outcome.summary.ok());
}

// Checks that the passes that were completed are of the iterations from `from` on, each with the
// images that `worker_sets` deal.
void CheckImages(const Setting& setting, const std::vector<WorkerSet>& worker_sets, int64_t from,
                 const std::vector<Pass>& passes) {
  const PlannedConfig config = ConfigOf(setting);
  const auto datasets = OpenDatasets(config);
  REQUIRE(datasets.ok());
  REQUIRE(datasets->train->size() == kImages);
  const auto dealing =
      Dealing::Create({.images = kImages, .batch_size = kBatch, .worker_sets = worker_sets});
  REQUIRE(dealing.ok());
  const auto loader = BatchLoader::Create(
      {.dataset = datasets->train.get(),
       .order = ShuffledOrder({.dealing = *dealing, .rank = setting.rank, .augment = true}),
       .batch_size = kBatch});
  REQUIRE(loader.ok());
  for (const Pass& pass : passes) {
    if (!pass.completed) continue;
    CAPTURE(pass.iteration);
    CHECK(pass.iteration == from++);
    const auto batch = (*loader)->Load(pass.iteration);
    REQUIRE(batch.ok());
    const Images expected(batch->images.begin(), batch->images.end());
    CHECK((pass.images == expected));  // without printing both
  }
}

std::vector<int64_t> Numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

const WorkerSet kAll = WorkerSetFrom(0, {0, 1, 2});

}  // namespace

TEST_CASE("every iteration trains on the images that its final worker set is dealt") {
  const Setting setting = {.schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL"),
                           .asynchronous = GENERATE(false, true),
                           .threads = GENERATE(0, 2),
                           .rank = GENERATE(0, 2)};
  CAPTURE(setting.schedule, setting.asynchronous, setting.threads, setting.rank);
  const std::vector<WorkerSet> lost = {kAll, WorkerSetFrom(4, {0, 2})};
  std::vector<WorkerSet> back = lost;
  back.push_back(WorkerSetFrom(8, {0, 1, 2}));
  // The loss is heard of at the last moment, the return once an iteration early and once late.
  const int64_t known = GENERATE(6, 7);
  const Outcome outcome =
      RunOne(setting, {.worker_sets = {kAll}, .settled = {{3, lost}, {known, back}}});
  RequireOk(outcome);
  CHECK(outcome.exchange.pushed == Numbers(0, 12));
  CheckImages(setting, back, 0, outcome.passes);
  CHECK(outcome.summary->iterations == 12);
  CHECK(outcome.summary->iteration_seconds.size() == 12);
  // Under FULL a pass that has begun with the old images is begun again, and no other.
  std::vector<int64_t> abandoned;
  for (const Pass& pass : outcome.passes) {
    if (!pass.completed) abandoned.push_back(pass.iteration);
  }
  std::vector<int64_t> expected;
  if (setting.schedule == "FULL") expected.push_back(4);
  if (setting.schedule == "FULL" && known == 7) expected.push_back(8);
  CHECK(abandoned == expected);
}

TEST_CASE("a run of epochs ends when its images are used up, whoever has trained on them") {
  const Setting setting = {
      .schedule = GENERATE("BACKWARD", "FULL"),
      .asynchronous = GENERATE(false, true),
      .overrides = {"training={batch_size: 8 epochs: 2 evaluate_every_epochs: 1}"}};
  CAPTURE(setting.schedule, setting.asynchronous);
  struct Case {
    std::map<int64_t, std::vector<WorkerSet>> settled;
    int64_t iterations;
    int64_t evaluated;  // after this many of them for the first time
  };
  const std::vector<WorkerSet> one_at_3 = {kAll, WorkerSetFrom(3, {0})};
  const std::vector<WorkerSet> one_at_6 = {kAll, WorkerSetFrom(6, {0})};
  std::vector<WorkerSet> all_at_8 = one_at_3;
  all_at_8.push_back(WorkerSetFrom(8, {0, 1, 2}));
  std::vector<WorkerSet> all_at_12 = one_at_3;
  all_at_12.push_back(WorkerSetFrom(12, {0, 1, 2}));
  const Case c =
      GENERATE_COPY(Case{{}, 6, 3},
                    // The 8 images that are left suffice for one more iteration of one worker.
                    Case{{{2, one_at_3}}, 14, 4},  //
                    Case{{{5, one_at_6}}, 7, 3},
                    // 32 of the second epoch are used, then 24 at a time.
                    Case{{{2, one_at_3}, {7, all_at_8}}, 10, 4},
                    // 16 are left of the last epoch, too few for three workers.
                    Case{{{2, one_at_3}, {11, all_at_12}}, 12, 4});
  CAPTURE(c.iterations);
  const Outcome outcome = RunOne(setting, {.worker_sets = {kAll}, .settled = c.settled});
  RequireOk(outcome);
  CHECK(outcome.exchange.pushed == Numbers(0, c.iterations));
  CHECK(outcome.evaluated == 2 * 20);
  CHECK_THAT(outcome.log, Contains(absl::StrCat("iteration ", c.evaluated, ": accuracy 100")) &&
                              Contains(absl::StrCat("iteration ", c.iterations, ": accuracy 100")));
  CHECK(CountOf(outcome.log, "accuracy") == 2);
}

TEST_CASE("the lowest rank of the worker set that goes on evaluates, and checks the accuracy") {
  const int rank = GENERATE(0, 1, 2);
  const bool comes_back = GENERATE(false, true);
  CAPTURE(rank, comes_back);
  const Setting setting = {.asynchronous = true,
                           .rank = rank,
                           .overrides = {"training={batch_size: 8 iterations: 9 "
                                         "evaluate_every_epochs: 1 required_accuracy: 0.5}"}};
  // Epochs end after 3 iterations, and after 2 more with three workers and 2 with two.
  std::vector<WorkerSet> worker_sets = {kAll, WorkerSetFrom(5, {1, 2})};
  if (comes_back) worker_sets.push_back(WorkerSetFrom(7, {0, 1, 2}));
  PlayedExchange::Script script = {.worker_sets = worker_sets};
  if (rank == 0 && !comes_back) return;  // it is dead
  if (rank == 0) script.start = 7;
  const Outcome outcome = RunOne(setting, script);
  RequireOk(outcome);
  const bool evaluates_last = comes_back ? rank == 0 : rank == 1;
  CHECK(outcome.summary->final_accuracy.has_value() == evaluates_last);
  CHECK(CountOf(outcome.log, "iteration 7: accuracy") == evaluates_last);
  CHECK(CountOf(outcome.log, "iteration 9: accuracy") == evaluates_last);
  CHECK(CountOf(outcome.log, "iteration 3: accuracy") == 0);  // rank 0 has done it
}

TEST_CASE("the lowest rank of the next round evaluates when the last round is a short one") {
  const int rank = GENERATE(1, 2);
  const Setting setting = {
      .schedule = "BACKWARD",
      .rank = rank,
      .overrides = {"training={batch_size: 8 iterations: 10 required_accuracy: 0.5}",
                    "local={steps: 4 optimizer {kind: SGD learning_rate: 0.1}}"}};
  // Worker 0 is lost in the last round.
  const Outcome outcome = RunOne(setting, {.worker_sets = {kAll, WorkerSetFrom(3, {1, 2})}});
  RequireOk(outcome);
  CHECK(outcome.summary->final_accuracy.has_value() == (rank == 1));
}

TEST_CASE("an accuracy that is the required one is enough") {
  // 17 of 20 images. The float 0.85 is larger than the double 17.0 / 20.
  Setting setting = {.schedule = "BACKWARD", .wrong = 3};
  setting.overrides = {"training={batch_size: 8 iterations: 3 required_accuracy: 0.85}"};
  RequireOk(RunOne(setting, {.worker_sets = {kAll}}));
  setting.overrides = {"training={batch_size: 8 iterations: 3 required_accuracy: 0.86}"};
  CHECK_THAT(std::string(RunOne(setting, {.worker_sets = {kAll}}).summary.status().message()),
             Contains("the accuracy of 0.8500 is below training.required_accuracy, 0.8600"));
}

TEST_CASE("a round pushes each fragment once, also if the training gets longer or shorter in it") {
  const auto [before, after] = GENERATE(table<int64_t, int64_t>({{4, 5}, {5, 4}, {8, 8}}));
  CAPTURE(before, after);
  const PlannedConfig config = ConfigOf(
      {.schedule = GENERATE("BACKWARD", "FULL"),
       .overrides = {"local={steps: 4 fragments: 2 optimizer {kind: SGD learning_rate: 0.1}}"}});
  auto model = LocalModel::Create(config);
  REQUIRE(model.ok());
  std::vector<float> pushed(config.model().buffer_size()), received(pushed.size());
  PlayedExchange::Log log;
  PlayedExchange exchange({.layers = {kLayers.begin(), kLayers.end()}}, &log);
  std::vector<Pass> passes;
  int evaluated = 0;
  RecordingBackend backend(/*asynchronous=*/false, &passes, &evaluated);
  const RealClock clock;
  int64_t length = before;
  LocalRounds rounds({.config = &config,
                      .clock = &clock,
                      .exchange = &exchange,
                      .backend = &backend,
                      .model = model->get(),
                      .pushed = absl::MakeSpan(pushed),
                      .received = absl::MakeSpan(received),
                      .length = [&] { return length; }});
  for (int64_t iteration = 0; iteration < length; ++iteration) {
    if (iteration == 2) length = after;
    rounds.Start(iteration);
    for (const int layer : kLayers) REQUIRE(rounds.AwaitParameters(layer).ok());
    REQUIRE(rounds.Finish(/*contributes=*/true, /*everything=*/false).ok());
  }
  const auto exchanges = static_cast<size_t>((after + 3) / 4);
  CHECK(log.pushed.size() == exchanges);
  for (const int layer : kLayers) {
    CHECK(static_cast<size_t>(std::count(log.layers.begin(), log.layers.end(), layer)) ==
          exchanges);
  }
}

TEST_CASE("after going back the worker pulls, and trains on the same images again") {
  const Setting setting = {.schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL"),
                           .asynchronous = GENERATE(false, true),
                           .threads = GENERATE(0, 2)};
  CAPTURE(setting.schedule, setting.asynchronous, setting.threads);
  const std::vector<WorkerSet> lost = {kAll, WorkerSetFrom(5, {0, 2})};
  const std::vector<WorkerSet> then = {kAll, WorkerSetFrom(6, {0, 1})};
  const Outcome outcome = RunOne(setting, {.worker_sets = {kAll},
                                           .settled = {{4, lost}},
                                           .returns = {{7, {.to = 4, .worker_sets = {kAll}}},
                                                       {5, {.to = 4, .worker_sets = then}}}});
  RequireOk(outcome);
  // The return from 5 comes first. Then 5 settles, until the one from 7.
  std::vector<int64_t> pushed = Numbers(0, 6);
  for (const int64_t i : Numbers(4, 8)) pushed.push_back(i);
  for (const int64_t i : Numbers(4, 12)) pushed.push_back(i);
  CHECK(outcome.exchange.pushed == pushed);
  CHECK(outcome.exchange.pulls == 3);
  CHECK(CountOf(outcome.log, "the run has gone back: goes on after iteration 4") == 2);
  // The completed passes, from one return to the next.
  std::vector<std::vector<Pass>> stretches(1);
  for (const Pass& pass : outcome.passes) {
    if (!pass.completed) continue;
    if (!stretches.back().empty() && pass.iteration <= stretches.back().back().iteration) {
      stretches.emplace_back();
    }
    stretches.back().push_back(pass);
  }
  REQUIRE(stretches.size() == 3);
  CheckImages(setting, lost, 0, stretches[0]);
  CheckImages(setting, then, 4, stretches[1]);
  CheckImages(setting, {kAll}, 4, stretches[2]);
  // An iteration counts each time that it was trained.
  const size_t counted = outcome.summary->iteration_seconds.size();
  CHECK(outcome.summary->iterations == static_cast<int64_t>(counted));
  CHECK(counted == (setting.schedule == "FULL" ? 18 : 16));
}

TEST_CASE("a worker that has finished goes on if the run has gone back before it could leave") {
  const Setting setting = {.asynchronous = true};
  const Outcome outcome =
      RunOne(setting, {.worker_sets = {kAll}, .return_at_end = {{.to = 9, .worker_sets = {kAll}}}});
  RequireOk(outcome);
  std::vector<int64_t> pushed = Numbers(0, 12);
  for (const int64_t i : Numbers(9, 12)) pushed.push_back(i);
  CHECK(outcome.exchange.pushed == pushed);
  CHECK(outcome.exchange.left == std::vector<absl::Status>(2));
  CHECK(outcome.summary->iterations == 15);
  CHECK(CountOf(outcome.log, "iteration 12: accuracy") == 2);
}

TEST_CASE("a worker that comes when the run has ended trains nothing") {
  const int rank = GENERATE(0, 1);
  const Outcome outcome =
      RunOne({.rank = rank},
             {.worker_sets = {kAll, WorkerSetFrom(9, {0, 2}), WorkerSetFrom(13, {0, 1, 2})},
              .start = rank == 0 ? 12 : 13});
  RequireOk(outcome);
  CHECK(outcome.passes.empty());
  CHECK(outcome.summary->final_accuracy.has_value() == (rank == 0));
}

TEST_CASE("a worker that the run goes on without says so") {
  const Setting setting = {.rank = 1};
  const Outcome outcome =
      RunOne(setting, {.worker_sets = {kAll}, .settled = {{3, {kAll, WorkerSetFrom(4, {0, 2})}}}});
  CHECK(outcome.summary.status() ==
        absl::FailedPreconditionError(
            "worker 1 does not count in iteration 4: the run goes on without it"));
  CHECK(outcome.exchange.left.size() == 1);
}

TEST_CASE("worker sets that cannot be end the worker") {
  const Outcome outcome =
      RunOne({}, {.worker_sets = {kAll}, .settled = {{3, {kAll, WorkerSetFrom(5, {0, 3})}}}});
  CHECK(outcome.summary.status() ==
        absl::InvalidArgumentError(
            "the worker set from iteration 5 on has rank 3, the config has 3 workers"));
}

}  // namespace evenshard
