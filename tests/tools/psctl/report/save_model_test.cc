#include "tools/psctl/report/save_model.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/reader/run_reader.h"
#include "nlohmann/json.hpp"
#include "tests/testing/scratch_folder.h"
#include "tests/tools/psctl/report/fake_shard.h"

namespace evenshard {
namespace {

// Two shards and a model whose tensors take several chunks; element i of the model, in
// model order, has the value i.
class Cluster {
 public:
  explicit Cluster(const std::string& more = "update { policy: SYNC }")
      : config_(MakeConfig(more)) {
    int64_t first = 0;
    for (const Tensor& tensor : config_.model().tensors()) {
      tensor_first_.push_back(first);
      first += tensor.size;
    }
    for (const Chunk& chunk : config_.plan().chunks()) {
      ParameterChunk message;
      message.set_chunk(chunk.id);
      message.set_version(3);
      for (int64_t i = 0; i < chunk.size; ++i) {
        const float value = static_cast<float>(tensor_first_[chunk.tensor] + chunk.begin + i);
        char bytes[sizeof(value)];
        std::memcpy(bytes, &value, sizeof(value));
        message.mutable_data()->append(bytes, sizeof(value));
      }
      shards_[chunk.shard].Change([&](auto* answers) { answers->chunks.push_back(message); });
    }
  }

  const PlannedConfig& config() const { return config_; }
  FakeShard& shard(int i) { return shards_[i]; }

 private:
  PlannedConfig MakeConfig(const std::string& more) {
    auto config = PlannedConfig::Parse(absl::StrCat(R"pb(
                                                      model {
                                                        input { channels: 1 height: 4 width: 4 }
                                                        layer {
                                                          name: "a"
                                                          linear { out_features: 8 }
                                                        }
                                                        layer {
                                                          name: "b"
                                                          linear { out_features: 5 }
                                                        }
                                                      }
                                                      partition { scheme: MEMORY_BASED }
                                                      training { iterations: 1 }
                                                      compute { backend: EMULATED }
                                                      limits { chunk_bytes: 128 }
                                                      shard { address: ")pb",
                                                    shards_[0].address(), "\"} shard { address: \"",
                                                    shards_[1].address(), "\"}", more),
                                       "cluster");
    INFO(config.status().message());
    REQUIRE(config.ok());
    return *std::move(config);
  }

  FakeShard shards_[2];
  PlannedConfig config_;
  std::vector<int64_t> tensor_first_;
};

TEST_CASE("every parameter of a saved model is read back from its place") {
  Cluster cluster;
  const ScratchFolder folder;
  const absl::Status status = SaveModel(cluster.config(), folder.Path("model")).status();
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(folder.Files() == std::vector<std::string>{"model"});
  CHECK(cluster.shard(0).pulled_plan == cluster.config().plan().fingerprint());

  const std::string file = folder.Read("model");
  uint64_t length = 0;  // this test's machine is little-endian, as the format
  REQUIRE(file.size() > sizeof(length));
  std::memcpy(&length, file.data(), sizeof(length));
  CHECK(length % 8 == 0);
  const auto header = nlohmann::json::parse(file.substr(sizeof(length), length), nullptr, false);
  REQUIRE_FALSE(header.is_discarded());
  const std::string data = file.substr(sizeof(length) + length);
  float expected = 0;
  for (const Tensor& tensor : cluster.config().model().tensors()) {
    const auto& entry = header[tensor.name];
    CHECK(entry["dtype"] == "F32");
    CHECK(entry["shape"] == tensor.shape);
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    REQUIRE(end <= data.size());
    REQUIRE(end - begin == tensor.size * sizeof(float));
    std::vector<float> values(tensor.size);
    std::memcpy(values.data(), data.data() + begin, end - begin);
    for (const float value : values) REQUIRE(value == expected++);
  }
  CHECK(data.size() == expected * sizeof(float));
}

TEST_CASE("each shard's parameters are asked of the primary that the view names") {
  const ScratchFolder folder;
  Cluster plain;
  REQUIRE(SaveModel(plain.config(), folder.Path("plain")).ok());

  Cluster moved("update { policy: SYNC } recovery { replicas: 1 }");
  const auto chunks_0 = moved.shard(0).answers().chunks;
  const auto chunks_1 = moved.shard(1).answers().chunks;
  moved.shard(0).Change([&](auto* answers) { answers->chunks = chunks_1; });
  moved.shard(1).Change([&](auto* answers) {
    answers->chunks = chunks_0;
    answers->view.set_number(5);
    answers->view.add_slot()->mutable_primary()->set_address(moved.shard(1).address());
    answers->view.add_slot()->mutable_primary()->set_address(moved.shard(0).address());
  });
  const absl::Status status = SaveModel(moved.config(), folder.Path("moved")).status();
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(folder.Read("moved") == folder.Read("plain"));

  moved.shard(1).Change([](auto* answers) { answers->view.mutable_slot(0)->clear_primary(); });
  CHECK(SaveModel(moved.config(), folder.Path("lost")).status().message() ==
        "no process is primary of slot 0 (view 5), for 2s");
}

TEST_CASE("a slot that moves while the model is saved is waited for") {
  Cluster cluster("update { policy: SYNC } recovery { replicas: 1 }");
  const auto set_primary = [&cluster](bool is_there) {
    for (int shard = 0; shard < 2; ++shard) {
      cluster.shard(shard).Change([&](auto* answers) {
        answers->view.Clear();
        answers->view.set_number(is_there ? 6 : 5);
        for (int slot = 0; slot < 2; ++slot) {
          SlotView* const view = answers->view.add_slot();
          if (!is_there && slot == 1) continue;
          view->mutable_primary()->set_address(cluster.shard(slot).address());
        }
      });
    }
  };
  set_primary(false);
  std::thread moves([&] {
    absl::SleepFor(absl::Milliseconds(200));
    set_primary(true);
  });
  const ScratchFolder folder;
  const absl::Status saved = SaveModel(cluster.config(), folder.Path("model")).status();
  moves.join();
  INFO(saved.message());
  CHECK(saved.ok());
}

TEST_CASE("a host that does not answer keeps nobody from the shards that do") {
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(bind(silent, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(silent, 1) == 0);  // connections come up, and nobody takes them
  REQUIRE(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  Cluster cluster(
      absl::StrCat("update { policy: SYNC } recovery { replicas: 1 spare { address: \"127.0.0.1:",
                   ntohs(address.sin_port), "\" } }"));
  for (int shard = 0; shard < 2; ++shard) {
    cluster.shard(shard).Change([&](auto* answers) {
      answers->view.set_number(5);
      for (int slot = 0; slot < 2; ++slot) {
        answers->view.add_slot()->mutable_primary()->set_address(cluster.shard(slot).address());
      }
    });
  }
  RunReader reader({.config = &cluster.config(), .waits_for_workers = false});
  const absl::StatusOr<int64_t> pulled = reader.Pull(
      RunReader::kAny, absl::Seconds(4), [] { return absl::OkStatus(); },
      [](const Chunk&, absl::string_view) { return absl::OkStatus(); });
  INFO(pulled.status());
  CHECK(pulled.ok());
  close(silent);
}

TEST_CASE("chunks may come in any order") {
  Cluster cluster;
  const ScratchFolder folder;
  REQUIRE(SaveModel(cluster.config(), folder.Path("ordered")).ok());
  cluster.shard(0).Change([](auto* answers) { absl::c_reverse(answers->chunks); });
  REQUIRE(SaveModel(cluster.config(), folder.Path("reversed")).ok());
  CHECK(folder.Read("reversed") == folder.Read("ordered"));
}

TEST_CASE("an error of a shard names the shard and leaves no file") {
  Cluster cluster;
  const ScratchFolder folder;
  auto answers = cluster.shard(1).answers();
  std::vector<ParameterChunk>& chunks = answers.chunks;
  REQUIRE(chunks.size() > 1);
  std::string expected;
  SECTION("a chunk is missing") {
    expected = absl::StrCat("did not send chunk ", chunks.back().chunk());
    chunks.pop_back();
  }
  SECTION("a chunk comes twice") {
    expected = absl::StrCat("sent chunk ", chunks[0].chunk(), " twice");
    chunks.push_back(chunks[0]);
  }
  SECTION("a chunk is too short") {
    chunks[0].mutable_data()->resize(8);
    expected = absl::StrCat("sent 8 bytes as chunk ", chunks[0].chunk());
  }
  SECTION("a chunk of the other shard") {
    chunks.push_back(cluster.shard(0).answers().chunks[0]);
    expected = "which the plan does not give to it";
  }
  SECTION("a chunk that does not exist") {
    chunks[0].set_chunk(4000000000);
    expected = "sent chunk 4000000000";
  }
  SECTION("the shard refuses") {
    chunks.clear();
    const grpc::Status refusal(grpc::StatusCode::FAILED_PRECONDITION, "has another plan");
    answers.pull_status = answers.snapshot_status = refusal;
    expected = "has another plan";
  }
  cluster.shard(1).Change([&](auto* present) { *present = answers; });
  const absl::Status status = SaveModel(cluster.config(), folder.Path("model")).status();
  CHECK_FALSE(status.ok());
  CHECK(absl::StartsWith(status.message(),
                         absl::StrCat("shard 1 (", cluster.shard(1).address(), "): ")));
  CHECK(absl::StrContains(status.message(), expected));
  CHECK(folder.Files().empty());
}

TEST_CASE("the model is saved at the iteration of the shard that is ahead") {
  Cluster cluster;
  const ScratchFolder folder;
  for (int shard = 0; shard < 2; ++shard) {
    cluster.shard(shard).Change([shard](auto* answers) {
      ShardStats& stats = answers->stats;
      stats.set_chunks(1);
      stats.mutable_progress()->set_least(6);
      stats.mutable_progress()->set_least_exchange(6);
      stats.mutable_progress()->set_largest(7 + shard);
      stats.mutable_progress()->set_largest_exchange(7 + shard);
      stats.add_worker()->set_state(WorkerStats::JOINED);
    });
  }
  const auto saved = SaveModel(cluster.config(), folder.Path("model"));
  INFO(saved.status().message());
  REQUIRE(saved.ok());
  CHECK(saved->iteration == 8);
  CHECK(cluster.shard(0).snapshot_iteration == 8);
  CHECK(cluster.shard(1).snapshot_iteration == 8);
  CHECK(cluster.shard(0).pulls == 0);
}

TEST_CASE("what has no iteration in common any more is saved as it is, with the reason") {
  Cluster cluster;
  const ScratchFolder folder;
  REQUIRE(SaveModel(cluster.config(), folder.Path("whole"))->iteration == 0);
  std::string reason;
  SECTION("the run has failed") {
    cluster.shard(1).Change([](auto* answers) { answers->stats.set_failure("worker 1 was lost"); });
    reason = "the run has failed: worker 1 was lost";
  }
  SECTION("the run has failed, as it says to whoever prints it") {
    cluster.shard(1).Change(
        [](auto* answers) { answers->stats.set_failure("\x1b[2Jall is well"); });
    reason = "the run has failed: \\x1b[2Jall is well";
  }
  SECTION("the run fails meanwhile") {
    cluster.shard(1).Change([](auto* answers) {
      answers->snapshot_status =
          grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the run has failed: too bad");
    });
    reason = "the run has failed: too bad";
  }
  SECTION("the workers are gone in the middle of an iteration") {
    cluster.shard(1).Change([](auto* answers) {
      answers->stats.set_chunks(1);
      answers->stats.mutable_progress()->set_least(6);
      answers->stats.mutable_progress()->set_least_exchange(6);
      answers->stats.mutable_progress()->set_largest(7);
      answers->stats.mutable_progress()->set_largest_exchange(7);
    });
    reason = "no worker trains, and the chunks are at different iterations, 6 to 7";
  }
  const auto saved = SaveModel(cluster.config(), folder.Path("model"));
  INFO(saved.status().message());
  REQUIRE(saved.ok());
  CHECK_FALSE(saved->iteration.has_value());
  CHECK(absl::StrContains(saved->why_not, reason));
  CHECK(folder.Read("model") == folder.Read("whole"));
}

TEST_CASE("under ASYNC a shard that was started again without a checkpoint is not passed over") {
  Cluster cluster("update { policy: ASYNC }");
  const ScratchFolder folder;
  const auto updates = [&](int shard, uint64_t count, bool is_over) {
    cluster.shard(shard).Change([&](auto* answers) {
      ShardStats::Progress* progress = answers->stats.mutable_progress();
      answers->stats.set_chunks(1);
      progress->set_least(count);
      progress->set_least_exchange(count);
      progress->set_largest(count);
      progress->set_largest_exchange(count);
      progress->set_is_over(is_over);
    });
  };
  updates(0, 890, /*is_over=*/true);
  // A worker that was lost in the middle of its pushes leaves chunks apart.
  updates(1, 889, /*is_over=*/true);
  CHECK(SaveModel(cluster.config(), folder.Path("model"))->iteration.has_value());
  updates(1, 0, /*is_over=*/false);
  const auto saved = SaveModel(cluster.config(), folder.Path("model"));
  REQUIRE(saved.ok());
  CHECK_FALSE(saved->iteration.has_value());
  CHECK(absl::StrContains(saved->why_not, "some chunks have had no update, others up to 890"));
}

TEST_CASE("where shards have mean gradients no model is saved, and a file stays") {
  FakeShard shard;
  shard.Change([](auto* answers) {
    answers->snapshot_status = {grpc::StatusCode::FAILED_PRECONDITION, "no parameters"};
  });
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
      absl::StrCat("model { from_workers { tensor { name: 'a' shape: 8 } } }"
                   "partition { scheme: MEMORY_BASED } update { policy: SYNC } workers: 2"
                   " optimizer { kind: MEAN } shard { address: '",
                   shard.address(), "' }"),
      "cluster");
  INFO(config.status().message());
  REQUIRE(config.ok());
  const ScratchFolder folder;
  const std::string path = folder.Write("model", "a model of before");
  const absl::Status status = SaveModel(*config, path).status();
  CHECK(absl::StrContains(status.message(), "optimizer.kind: is MEAN"));
  CHECK(absl::StrContains(status.message(), "allowed: to have a worker's program save its model"));
  CHECK(folder.Read("model") == "a model of before");
  CHECK(shard.pulls == 0);
}

TEST_CASE("a path that cannot be written is refused before anything is pulled") {
  Cluster cluster;
  const ScratchFolder folder;
  const absl::Status status = SaveModel(cluster.config(), folder.Path("none/model")).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(cluster.shard(0).pulled_plan == 0);
}

}  // namespace
}  // namespace evenshard
