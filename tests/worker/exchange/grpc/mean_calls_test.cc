// A worker's means, from a shard that answers what the test says.

#include "worker/exchange/grpc/mean_calls.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/wire/mean_limits.h"
#include "grpcpp/grpcpp.h"
#include "tests/testing/cluster.h"
#include "tests/testing/local_server.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Answers each call of Mean with as many values as it was told.
class ShardWithMeans final : public ParameterServer::Service {
 public:
  explicit ShardWithMeans(int values) : values_(values) {}

  const std::string& address() const { return server_.address(); }

  // Whatever it is told of the mean with this number, it has another one.
  void Refuse(uint32_t number) { refused_ = number; }

  // The means that it was told since the last call.
  std::vector<MeanRequest> TakeTold() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(told_, {});
  }

  grpc::Status Mean(grpc::ServerContext*, const MeanRequest* request,
                    MeanResponse* response) override {
    absl::MutexLock lock(&mutex_);
    if (request->is_mean()) told_.push_back(*request);
    if (request->is_mean() && request->number() == refused_) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "another place"};
    }
    response->set_complete(true);
    for (int i = 0; i < values_; ++i) response->add_value(0.5);
    return grpc::Status::OK;
  }

 private:
  const int values_;
  std::atomic<int64_t> refused_ = -1;
  absl::Mutex mutex_;
  std::vector<MeanRequest> told_ ABSL_GUARDED_BY(mutex_);
  const LocalServer server_{this};
};

// A worker that asks it.
struct Asker {
  explicit Asker(const ShardWithMeans& shard)
      : control(std::make_shared<ShardControl>(ShardControl::Options{.config = &config,
                                                                     .slot = 0,
                                                                     .address = shard.address(),
                                                                     .rank = 0,
                                                                     .incarnation = 7,
                                                                     .clock = &clock,
                                                                     .stop = {}})),
        calls({.clock = &clock,
               .control = [this] { return control; },
               .failure = [] { return absl::OkStatus(); },
               .generation = [this] { return generation; },
               .stop = {}}),
        means(
            &calls, [this] { return view; }, [this] { return control; }) {}

  const PlannedConfig config = MustParse(kSmallConfig);
  const RealClock clock;
  uint64_t view = 1;
  uint64_t generation = 1;
  const std::shared_ptr<ShardControl> control;
  const PersistentCalls calls;
  MeanCalls means;
};

absl::StatusOr<std::vector<double>> MeanOfTwo(const ShardWithMeans& shard) {
  return Asker(shard).means.Ask(3, "train.py:40", {1, 2});
}

// "3.0 3.1" of the second mean before exchange 3, in order.
std::vector<std::string> NumbersOf(const std::vector<MeanRequest>& means) {
  std::vector<std::string> numbers;
  for (const MeanRequest& mean : means) {
    numbers.push_back(absl::StrCat(mean.iteration(), ".", mean.number()));
  }
  return numbers;
}

}  // namespace

TEST_CASE("a mean has as many values as were given") {
  const auto mean = MeanOfTwo(ShardWithMeans(2));
  INFO(mean.status().message());
  REQUIRE(mean.ok());
  CHECK(*mean == std::vector<double>{0.5, 0.5});
}

TEST_CASE("another process gets all means before the present exchange, once") {
  using Numbers = std::vector<std::string>;
  ShardWithMeans shard(1);
  Asker worker(shard);
  for (const uint64_t iteration : {2, 3, 3, 3}) {
    REQUIRE(worker.means.Ask(iteration, "train.py:40", {1}).ok());
  }
  worker.means.Retell();
  CHECK(shard.TakeTold().empty());
  worker.view = 2;
  worker.generation = 9;  // they belong to the one in which they were asked for
  worker.means.Retell();
  const std::vector<MeanRequest> told = shard.TakeTold();
  CHECK(NumbersOf(told) == Numbers{"3.0", "3.1", "3.2"});
  for (const MeanRequest& mean : told) {
    CHECK(mean.generation() == 1);
    CHECK(mean.value(0) == 0.5);
  }
  worker.means.Retell();
  CHECK(shard.TakeTold().empty());
  REQUIRE(worker.means.Ask(3, "train.py:40", {1}).ok());
  worker.means.Retell();
  CHECK(shard.TakeTold().empty());
  worker.view = 3;
  worker.means.Retell();
  CHECK(NumbersOf(shard.TakeTold()) == Numbers{"3.0", "3.1", "3.2", "3.3"});
  shard.Refuse(0);  // of which another worker knows already, and the others come nevertheless
  worker.view = 4;
  worker.means.Retell();
  CHECK(NumbersOf(shard.TakeTold()) == Numbers{"3.0", "3.1", "3.2", "3.3"});
  worker.means.Forget();
  worker.view = 5;
  worker.means.Retell();
  CHECK(shard.TakeTold().empty());
}

TEST_CASE("a worker has no more means to tell than a shard keeps") {
  ShardWithMeans shard(0);
  Asker worker(shard);
  for (size_t i = 0; i < kMostMeans + 2; ++i) REQUIRE(worker.means.Ask(0, "train.py:40", {}).ok());
  worker.view = 2;
  worker.means.Retell();
  const std::vector<MeanRequest> told = shard.TakeTold();
  REQUIRE(told.size() == kMostMeans);
  CHECK(told.front().number() == 2);
  CHECK(told.back().number() == kMostMeans + 1);
}

TEST_CASE("a mean of another number of values is refused, since the caller has no room for it") {
  const int values = GENERATE(0, 1, 3, 1000);
  const absl::Status refused = MeanOfTwo(ShardWithMeans(values)).status();
  CHECK(absl::IsInternal(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains(absl::StrCat(" gave a mean of ", values, " values, asked for 2")));
}

}  // namespace evenshard
