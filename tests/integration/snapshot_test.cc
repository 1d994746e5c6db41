// Readers beside a training whose parameters after n iterations are all n: every snapshot must be
// of one iteration, whatever the workers do meanwhile.

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/reader/run_reader.h"
#include "tests/testing/cluster.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

constexpr int kShards = 3;

// With SGD at rate 1 and gradients of -1, each iteration adds 1 to each of about 14,000 parameters.
std::string Text(const ScratchFolder& folder, bool unix_sockets, const std::string& more) {
  std::string text = R"(
    model { from_workers {
      tensor { name: "a.weight" shape: [90, 70] }
      tensor { name: "a.bias" shape: [90] }
      tensor { name: "b.weight" shape: [70, 110] }
      tensor { name: "mean" shape: [30] role: RUNNING_STATISTIC }
      tensor { name: "scale" }
    } }
    partition { scheme: MEMORY_BASED }
    optimizer { kind: SGD learning_rate: 1 }
    workers: 2
    limits { chunk_bytes: 1024 startup_seconds: 20 exchange_seconds: 60 shutdown_seconds: 5 }
  )";
  for (int shard = 0; shard < kShards; ++shard) {
    const std::string address =
        unix_sockets ? "unix:" + folder.Path(absl::StrCat(shard, ".sock")) : "127.0.0.1:0";
    absl::StrAppend(&text, "shard { address: \"", address, "\" }\n");
  }
  return text + more;
}

// Shards, and the config with which a reader finds them.
struct Run {
  explicit Run(const std::string& text) : cluster(MustParse(text)), text(text) {}
  PlannedConfig ReaderConfig() const {
    std::vector<std::string> overrides;
    for (int shard = 0; shard < kShards; ++shard) {
      overrides.push_back(
          absl::StrCat("shard[", shard, "].address=\"", cluster.addresses()[shard], "\""));
    }
    return MustParse(text, overrides);
  }

  TestCluster cluster;
  const std::string text;
};

// The part of one worker.
absl::Status Train(
    const PlannedConfig& config, Exchange& exchange, int iterations,
    const std::function<void(int)>& before = [](int) {}) {
  std::vector<float> parameters(config.model().buffer_size());
  const std::vector<float> initial(parameters.size());
  const std::vector<float> gradient(parameters.size(), -1.0f);
  RETURN_IF_ERROR(exchange.Initialize(initial, absl::MakeSpan(parameters)));
  for (int i = 0; i < iterations; ++i) {
    before(i);
    RETURN_IF_ERROR(
        exchange.PushPull(exchange.next_iteration(), gradient, absl::MakeSpan(parameters)));
  }
  return absl::OkStatus();
}

// Under ASYNC a push adds 1 to a parameter, and one W-th of that to a running statistic: what it
// adds to each element of the model, in the order of Snapshot::values.
std::vector<float> OfOneAsyncPush(const PlannedConfig& config) {
  std::vector<float> added;
  for (const Tensor& tensor : config.model().tensors()) {
    const bool is_statistic = tensor.role == TensorRole::kRunningStatistic;
    added.resize(added.size() + tensor.size,
                 is_statistic ? 1.0f / static_cast<float>(config.proto().workers()) : 1.0f);
  }
  return added;
}

struct Snapshot {
  absl::StatusOr<int64_t> iteration = absl::UnknownError("not pulled");
  std::vector<float> values;  // of all tensors
};

Snapshot Pull(RunReader& reader, const PlannedConfig& config, int64_t newer_than = RunReader::kAny,
              absl::Duration timeout = absl::Seconds(60)) {
  std::vector<float> buffer(config.model().buffer_size(), -7.0f);
  Snapshot snapshot;
  snapshot.iteration = reader.Pull(
      newer_than, timeout, [] { return absl::OkStatus(); },
      [&](const Chunk& chunk, absl::string_view data) {
        std::memcpy(buffer.data() + chunk.model_offset, data.data(), data.size());
        return absl::OkStatus();
      });
  for (const Tensor& tensor : config.model().tensors()) {
    snapshot.values.insert(snapshot.values.end(), buffer.begin() + tensor.offset,
                           buffer.begin() + tensor.offset + tensor.size);
  }
  return snapshot;
}

// What is wrong with a snapshot, or "".
std::string Problem(const Snapshot& snapshot) {
  if (!snapshot.iteration.ok()) return snapshot.iteration.status().ToString();
  for (size_t i = 0; i < snapshot.values.size(); ++i) {
    if (snapshot.values[i] == static_cast<float>(*snapshot.iteration)) continue;
    return absl::StrCat("element ", i, " of the snapshot of iteration ", *snapshot.iteration,
                        " is ", snapshot.values[i]);
  }
  return "";
}

TEST_CASE("every snapshot is of one iteration, while two workers train and four readers pull") {
  const bool unix_sockets = GENERATE(true, false);
  const std::string shared_memory = GENERATE("true", "false");
  const std::string update = GENERATE("policy: SYNC", "policy: SYNC deterministic: true");
  CAPTURE(unix_sockets, shared_memory, update);
  const ScratchFolder folder;
  Run run(Text(folder, unix_sockets,
               absl::StrCat("update { ", update, " } exchange { shared_memory: ", shared_memory,
                            " schedule: FULL }")));
  const PlannedConfig config = run.ReaderConfig();
  constexpr int kReaders = 4;
  std::atomic<int> pulls = 0;
  std::vector<std::string> problems(kReaders, "did not run");
  std::vector<int> pulled(kReaders);
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      RunReader reader({.config = &config});
      std::mt19937 random(i);
      int64_t latest = RunReader::kAny;
      problems[i] = "";
      while (problems[i].empty()) {
        const int64_t newer_than = random() % 2 == 0 ? latest + random() % 3 : RunReader::kAny;
        const Snapshot snapshot = Pull(reader, config, newer_than);
        if (absl::IsOutOfRange(snapshot.iteration.status())) break;
        problems[i] = Problem(snapshot);
        if (!problems[i].empty()) break;
        if (*snapshot.iteration <= newer_than || *snapshot.iteration < latest) {
          problems[i] = absl::StrCat("iteration ", *snapshot.iteration, " came after ", latest,
                                     " and had to be above ", newer_than);
        }
        latest = *snapshot.iteration;
        ++pulled[i];
        ++pulls;
      }
    });
  }
  constexpr int kMost = 150;
  RequireAllOk(run.cluster.RunWorkers([&](int rank, Exchange& exchange) {
    return Train(config, exchange, kMost, [&](int i) {
      if (rank == 0 && i > 100 && pulls < 40) absl::SleepFor(absl::Milliseconds(20));
    });
  }));
  for (std::thread& reader : readers) reader.join();
  for (int i = 0; i < kReaders; ++i) {
    CHECK(problems[i] == "");
    CHECK(pulled[i] > 0);
  }
  RunReader last({.config = &config});
  const Snapshot snapshot = Pull(last, config);
  CHECK(Problem(snapshot) == "");
  CHECK(*snapshot.iteration == kMost);
}

TEST_CASE("a snapshot waits for the initial parameters, and for newer ones") {
  const ScratchFolder folder;
  Run run(Text(folder, false, "update { policy: SYNC }"));
  const PlannedConfig config = run.ReaderConfig();
  Snapshot first;
  Snapshot newer;
  std::atomic<bool> first_is_there = false;
  std::thread thread([&] {
    RunReader reader({.config = &config});
    first = Pull(reader, config);
    first_is_there = true;
    newer = Pull(reader, config, /*newer_than=*/4);
  });
  RequireAllOk(run.cluster.RunWorkers([&](int, Exchange& exchange) {
    return Train(config, exchange, 6, [&](int i) {
      while (i == 0 && !first_is_there) absl::SleepFor(absl::Milliseconds(1));
    });
  }));
  thread.join();
  CHECK(Problem(first) == "");
  CHECK(*first.iteration == 0);
  CHECK(Problem(newer) == "");
  CHECK(*newer.iteration >= 5);

  RunReader late({.config = &config});
  CHECK(*Pull(late, config, 5).iteration == 6);
  CHECK(Pull(late, config, 6).iteration.status() ==
        absl::OutOfRangeError("the run is over; its last iteration is 6"));
}

TEST_CASE(
    "a snapshot does not wait for training that pauses when a shard has passed the first try") {
  const ScratchFolder folder;
  Run run(Text(folder, false, "update { policy: SYNC }"));
  const PlannedConfig config = run.ReaderConfig();
  std::atomic<int> allowed = 1;  // iterations
  std::atomic<int> done = 0;
  const auto train = [&](int rank, Exchange& exchange) {
    return Train(config, exchange, 3, [&](int i) {
      if (rank == 0) done = i;
      while (i == allowed) absl::SleepFor(absl::Milliseconds(1));
    });
  };
  std::vector<absl::Status> outcomes;
  std::thread workers([&] { outcomes = run.cluster.RunWorkers(train); });
  AwaitTrue([&] { return done == 1; });
  RunReader reader({.config = &config});
  int attempts = 0;
  const absl::StatusOr<int64_t> iteration = reader.Pull(
      RunReader::kAny, absl::Seconds(60),
      [&] {  // iteration 1 has been chosen
        if (attempts++ == 0) {
          allowed = 2;
          AwaitTrue([&] { return done == 2; });
        }
        return absl::OkStatus();
      },
      [](const Chunk&, absl::string_view) { return absl::OkStatus(); });
  allowed = -1;
  workers.join();
  RequireAllOk(outcomes);
  REQUIRE(iteration.ok());
  CHECK(*iteration == 2);
  CHECK(attempts == 3);  // iterations 1, 3, and then 2
}

TEST_CASE("a reader that waits for training ends by its stop, its timeout, or the run's failure") {
  const ScratchFolder folder;
  Run run(Text(folder, false, "update { policy: SYNC }"));
  const PlannedConfig config = run.ReaderConfig();
  std::stop_source stop;
  std::string part;
  absl::Duration timeout = absl::InfiniteDuration();
  bool fails = false;
  SECTION("stop") { part = "interrupted"; }
  SECTION("timeout") {
    timeout = absl::Milliseconds(300);
    part = "there was no snapshot in 300ms";
  }
  SECTION("failure") {
    fails = true;
    part = "the run has failed";
  }
  std::atomic<bool> is_done = false;
  Snapshot waited;
  std::thread thread([&] {
    RunReader reader({.config = &config, .stop = stop.get_token()});
    waited = Pull(reader, config, /*newer_than=*/10, timeout);
    is_done = true;
  });
  std::atomic<int> trained = 0;
  const auto outcomes = run.cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
    const absl::Status status = Train(config, exchange, 3);
    ++trained;
    RETURN_IF_ERROR(status);
    while (trained < config.proto().workers()) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(200));
    if (fails && rank == 0) return absl::AbortedError("worker 0 gives up");
    if (part == "interrupted") stop.request_stop();
    while (!is_done) absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  });
  thread.join();
  INFO(waited.iteration.status().ToString());
  CHECK_FALSE(waited.iteration.ok());
  CHECK(absl::StrContains(waited.iteration.status().message(), part));
}

TEST_CASE("a reader with another model is refused") {
  const ScratchFolder folder;
  Run run(Text(folder, false, "update { policy: SYNC }"));
  std::vector<std::string> overrides = {"partition.scheme=STRIPED"};
  for (int shard = 0; shard < kShards; ++shard) {
    overrides.push_back(
        absl::StrCat("shard[", shard, "].address=\"", run.cluster.addresses()[shard], "\""));
  }
  const PlannedConfig other = MustParse(run.text, overrides);
  RunReader reader({.config = &other});
  const Snapshot snapshot = Pull(reader, other);
  CHECK(snapshot.iteration.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(snapshot.iteration.status().message(), "another plan than shard"));
}

TEST_CASE("ASYNC: every chunk has at least as many updates as the snapshot says") {
  const ScratchFolder folder;
  Run run(Text(folder, false, "update { policy: ASYNC }"));
  const PlannedConfig config = run.ReaderConfig();
  std::vector<Snapshot> snapshots;
  std::thread thread([&] {
    RunReader reader({.config = &config});
    int64_t latest = RunReader::kAny;
    while (true) {
      snapshots.push_back(Pull(reader, config, latest));
      if (!snapshots.back().iteration.ok()) return;
      latest = *snapshots.back().iteration;
    }
  });
  RequireAllOk(run.cluster.RunWorkers(
      [&](int, Exchange& exchange) { return Train(config, exchange, 100); }));
  thread.join();
  CHECK(absl::IsOutOfRange(snapshots.back().iteration.status()));
  snapshots.pop_back();
  REQUIRE(snapshots.size() > 1);
  const std::vector<float> added = OfOneAsyncPush(config);
  int64_t before = -1;
  for (const Snapshot& snapshot : snapshots) {
    CHECK(*snapshot.iteration > before);
    before = *snapshot.iteration;
    for (size_t i = 0; i < added.size(); ++i) {
      REQUIRE(snapshot.values[i] >= *snapshot.iteration * added[i]);
    }
  }
  // Two workers have pushed 100 times each.
  CHECK(before == 200);
  for (size_t i = 0; i < added.size(); ++i) {
    REQUIRE(snapshots.back().values[i] == 200 * added[i]);
  }
}

TEST_CASE("a shard serves a bounded number of snapshots, and its end ends them") {
  const ScratchFolder folder;
  auto run = std::make_unique<Run>(
      absl::StrReplaceAll(Text(folder, false, "update { policy: SYNC }"),
                          {{"limits {", "limits { strangers { snapshots: 5 }"}}));
  const PlannedConfig config = run->ReaderConfig();
  const auto connected = [&] {
    return ParameterServer::NewStub(
        CreateChannel(run->cluster.addresses()[0], config.proto(), {.role = Role::kShard}));
  };
  const auto stub = connected();
  const auto other = connected();
  SnapshotRequest request;
  request.set_plan_fingerprint(config.plan().fingerprint());
  request.set_iteration(1);
  std::deque<grpc::ClientContext> contexts(6);
  std::vector<std::unique_ptr<grpc::ClientReader<ParameterChunk>>> calls;
  for (int i = 0; i < 5; ++i) calls.push_back(stub->Snapshot(&contexts[i], request));
  // The last one to come is refused, whichever that is.
  calls.push_back(other->Snapshot(&contexts[5], request));
  std::atomic<int> refused = 0;
  std::atomic<int> ended = 0;
  std::vector<std::thread> threads;
  for (const auto& call : calls) {
    threads.emplace_back([&] {
      ParameterChunk chunk;
      while (call->Read(&chunk)) {
      }
      const grpc::Status status = call->Finish();
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
          status.error_message() ==
              "the shard serves 5 Snapshots, the most at a time; try again when another has "
              "ended") {
        ++refused;
      }
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE) ++ended;
    });
  }
  AwaitTrue([&] { return refused == 1; });
  run.reset();
  for (std::thread& thread : threads) thread.join();
  CHECK(refused == 1);
  CHECK(ended == 5);
}

}  // namespace
}  // namespace evenshard
