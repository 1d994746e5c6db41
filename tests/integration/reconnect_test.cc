// Connections that break while a worker and its shards exchange: nothing is lost or counted twice.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/control/view/view_link.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "tests/testing/arriving_gradients.h"
#include "tests/testing/cluster.h"
#include "tests/testing/cutting_proxy.h"
#include "tests/testing/subtracting_shard.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr int kIterations = 60;

// Never shut down: the end of gRPC's last user can take the 10 s of a poller of gRPC's own.
const bool kGrpcStarted = (grpc_init(), true);

// Takes `gradient` off the expected parameters, as the shards should.
void Subtract(const Model& model, const std::vector<float>& gradient,
              std::vector<float>* expected) {
  for (const Tensor& tensor : model.tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      (*expected)[i] -= gradient[i];
    }
  }
}

bool AreSame(const Model& model, const std::vector<float>& actual,
             const std::vector<float>& expected) {
  return std::all_of(model.tensors().begin(), model.tensors().end(), [&](const Tensor& tensor) {
    return std::equal(expected.begin() + tensor.offset,
                      expected.begin() + tensor.offset + tensor.size,
                      actual.begin() + tensor.offset);
  });
}

// Makes the views of a run with one worker.
class FakeLink final : public ViewLink {
 public:
  void Start(Listener listener) override { listener_ = std::move(listener); }
  void Announce(const ProcessState& state) override {
    absl::MutexLock lock(&mutex_);
    state_ = state;
  }
  bool HoldsRoles() const override { return true; }

  ProcessState state() {
    absl::MutexLock lock(&mutex_);
    return state_;
  }
  void Publish(const View& view) { listener_.on_view(view); }

 private:
  Listener listener_;
  absl::Mutex mutex_;
  ProcessState state_;
};

struct Shards {
  explicit Shards(const std::vector<std::string>& overrides)
      : config(MustParse(kSmallConfig, overrides)) {
    for (int slot = 0; slot < config.shards(); ++slot) {
      slots.push_back(std::make_unique<SubtractingSlot>(&config, slot));
      shards.push_back(std::make_unique<SubtractingShard>(slots.back().get()));
    }
  }
  absl::StatusOr<std::unique_ptr<Exchange>> Connect(const std::vector<std::string>& addresses) {
    return Exchange::Connect({.config = &config, .rank = 0, .addresses = addresses});
  }

  const PlannedConfig config;
  std::vector<std::unique_ptr<SubtractingSlot>> slots;
  std::vector<std::unique_ptr<SubtractingShard>> shards;  // by slot: its primary
};

// Shards that follow views, which the test makes.
struct ViewedShards : Shards {
  explicit ViewedShards(const std::vector<std::string>& overrides) : Shards(overrides) {
    view.set_generation(1);
    view.add_worker_set()->add_rank(0);
    view.add_worker()->set_state(WorkerView::MEMBER);
    for (size_t slot = 0; slot < shards.size(); ++slot) view.add_slot();
  }
  // Lets the shards follow the next view, and then the worker.
  void Publish() {
    view.set_number(view.number() + 1);
    view.mutable_worker(0)->set_incarnation(link.state().incarnation());
    for (size_t slot = 0; slot < shards.size(); ++slot) {
      ProcessId* primary = view.mutable_slot(static_cast<int>(slot))->mutable_primary();
      primary->set_address(shards[slot]->address());
      shards[slot]->Follow(view.number());
    }
    link.Publish(view);
  }
  // Connects, while another thread makes the first view.
  absl::StatusOr<std::unique_ptr<Exchange>> ConnectByViews() {
    std::thread first([this] {
      while (link.state().incarnation() == 0) absl::SleepFor(absl::Milliseconds(1));
      Publish();
    });
    auto exchange = Exchange::Connect({.config = &config, .rank = 0, .view_link = &link});
    first.join();
    return exchange;
  }
  absl::Status Leave(Exchange* exchange) {
    std::thread last([this] {
      while (!link.state().finished()) absl::SleepFor(absl::Milliseconds(1));
      view.mutable_worker(0)->set_state(WorkerView::FINISHED);
      view.set_finished(true);
      Publish();
    });
    const absl::Status left = exchange->Leave(absl::OkStatus());
    last.join();
    return left;
  }

  FakeLink link;
  View view;
};

}  // namespace

TEST_CASE("a worker whose connections break at any moment trains as if they had not") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  const uint64_t seed = std::random_device()();
  CAPTURE(schedule, seed);
  Shards run({"workers=1", "exchange.schedule=" + schedule, "limits.connections=2"});
  std::vector<std::unique_ptr<CuttingProxy>> proxies;
  std::vector<std::string> addresses;
  for (const auto& shard : run.shards) {
    proxies.push_back(std::make_unique<CuttingProxy>(shard->address(), seed + proxies.size(),
                                                     /*cuts=*/25, /*most_bytes=*/60'000));
    addresses.push_back(proxies.back()->address());
  }
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = run.Connect(addresses);
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());

  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size(), 5);
  std::vector<float> expected(model.buffer_size());
  REQUIRE((*exchange)->Pull(absl::MakeSpan(parameters)).ok());
  // Its memory is used again: what is pushed late would push another gradient.
  std::vector<float> gradient;
  for (int i = 0; i < kIterations; ++i) {
    gradient = TestGradient(model, 0, i);
    Subtract(model, gradient, &expected);
    absl::Status status;
    if (schedule == "SEQUENTIAL") {
      status = (*exchange)->PushPull(i, gradient, absl::MakeSpan(parameters));
    } else {
      status = (*exchange)->Begin(i, gradient, absl::MakeSpan(parameters));
      for (const int layer : {4, 2, 0}) REQUIRE((*exchange)->Push(layer).ok());
      for (const int layer : {0, 2, 4}) status.Update((*exchange)->AwaitLayer(layer));
    }
    INFO(status.ToString());
    REQUIRE(status.ok());
    REQUIRE(AreSame(model, parameters, expected));
  }
  const absl::Status left = (*exchange)->Leave(absl::OkStatus());
  INFO(left.ToString());
  CHECK(left.ok());
  int64_t joins = 0, repeats = 0;
  for (size_t slot = 0; slot < run.shards.size(); ++slot) {
    joins += run.shards[slot]->joins();
    repeats += run.slots[slot]->repeats();
  }
  CHECK(joins > 10);
  CHECK(repeats > 0);
}

TEST_CASE("a shard that was started anew without its state ends the worker") {
  Shards run({"workers=1"});
  CuttingProxy proxy(run.shards[1]->address(), /*seed=*/1, /*cuts=*/1000, /*most_bytes=*/100'000);
  auto exchange = run.Connect({run.shards[0]->address(), proxy.address()});
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  run.slots[1]->GoBack(0, std::vector<float>(run.config.model().buffer_size()));
  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size());
  std::vector<float> gradient;  // in use until Leave
  absl::Status status;
  for (int i = 0; status.ok(); ++i) {
    gradient = TestGradient(model, 0, i);
    status = (*exchange)->PushPull(i, gradient, absl::MakeSpan(parameters));
  }
  CHECK(status ==
        absl::FailedPreconditionError(absl::StrCat(
            "shard 1 (", proxy.address(), "): the shard was started anew without its state")));
  (*exchange)->Leave(status).IgnoreError();
}

TEST_CASE("a shard that is gone is given up after limits.reconnect_seconds, or at once") {
  const std::string seconds = GENERATE("0.3", "0");
  Shards run({"workers=1", "limits.reconnect_seconds=" + seconds});
  auto exchange = run.Connect({run.shards[0]->address(), run.shards[1]->address()});
  REQUIRE(exchange.ok());
  const std::string name = absl::StrCat("shard 1 (", run.shards[1]->address(), "): ");
  run.shards.pop_back();
  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size());
  const std::vector<float> gradient = TestGradient(model, 0, 0);  // in use until Leave
  const absl::Status status = (*exchange)->PushPull(0, gradient, absl::MakeSpan(parameters));
  INFO(status.ToString());
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()), Catch::StartsWith(name));
  if (seconds != "0") {
    CHECK_THAT(std::string(status.message()),
               Contains("it was not there again within 0.3 s (limits.reconnect_seconds)"));
  }
  (*exchange)->Leave(status).IgnoreError();
}

TEST_CASE("an error that does not pass ends the worker when it connects again") {
  Shards run({"workers=1"});
  CuttingProxy proxy(run.shards[0]->address(), /*seed=*/2, /*cuts=*/1000, /*most_bytes=*/100'000);
  auto exchange = run.Connect({proxy.address(), run.shards[1]->address()});
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  run.shards[0]->Refuse(
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the run has failed: worker 1 is lost"));
  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size());
  std::vector<float> gradient;  // in use until Leave
  absl::Status status;
  for (int i = 0; status.ok(); ++i) {
    gradient = TestGradient(model, 0, i);
    status = (*exchange)->PushPull(i, gradient, absl::MakeSpan(parameters));
  }
  CHECK(status == absl::FailedPreconditionError(absl::StrCat(
                      "shard 0 (", proxy.address(), "): the run has failed: worker 1 is lost")));
  (*exchange)->Leave(status).IgnoreError();
}

TEST_CASE("a worker follows a slot to another process, and pushes again what a new view dropped") {
  const std::string encoding = GENERATE("FLOAT32", "INT4 error_feedback: true");
  CAPTURE(encoding);
  ViewedShards run({"workers=1", "limits.exchange_seconds=30",
                    "exchange={gradient_encoding: " + encoding + "}"});
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = run.ConnectByViews();
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  CHECK((*exchange)->view_number() == 1);

  std::atomic<int> done{0};
  std::thread coordinator([&] {
    const auto wait_until = [&](int iteration) {
      while (done < iteration) absl::SleepFor(absl::Milliseconds(1));
    };
    for (int change = 1; change <= 5; ++change) {
      wait_until(change * 5);
      const int slot = change % 2;
      // The old process may answer until it dies. The next one has all that it has answered.
      run.shards[slot] = std::make_unique<SubtractingShard>(run.slots[slot].get());
      run.Publish();
      wait_until(change * 5 + 2);
      run.Publish();  // nothing moves, but what the shards get meanwhile is of an older view
    }
  });
  const Model& model = run.config.model();
  ArrivingGradients arriving(&run.config, 0);
  std::vector<float> parameters(model.buffer_size(), 5);
  std::vector<float> expected(model.buffer_size());
  std::vector<float> gradient;
  absl::Status status = (*exchange)->Pull(absl::MakeSpan(parameters));
  bool same = true;
  for (int i = 0; i < 40; ++i) {
    gradient = TestGradient(model, 0, i);
    Subtract(model, arriving.Push(i, gradient), &expected);
    if (status.ok()) status = (*exchange)->PushPull(i, gradient, absl::MakeSpan(parameters));
    same = same && AreSame(model, parameters, expected);
    ++done;
  }
  coordinator.join();
  INFO(status.ToString());
  REQUIRE(status.ok());
  CHECK(same);
  CHECK((*exchange)->view_number() == 11);
  const absl::Status left = run.Leave(exchange->get());
  INFO(left.ToString());
  CHECK(left.ok());
}

TEST_CASE("a worker whose run goes back to a checkpoint goes on from there") {
  const std::string encoding = GENERATE("FLOAT32", "INT4 error_feedback: true");
  CAPTURE(encoding);
  ViewedShards run({"workers=1", "limits.exchange_seconds=30",
                    "exchange={gradient_encoding: " + encoding + "}"});
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = run.ConnectByViews();
  REQUIRE(exchange.ok());
  const Model& model = run.config.model();
  ArrivingGradients arriving(&run.config, 0);
  std::vector<float> parameters(model.buffer_size());
  std::vector<float> expected(model.buffer_size());
  std::vector<float> gradient, saved;
  REQUIRE((*exchange)->Pull(absl::MakeSpan(parameters)).ok());
  std::thread coordinator;
  int64_t i = 0;
  bool went_back = false;
  while (i < 20) {
    if (i == 7) saved = expected;
    gradient = TestGradient(model, 0, static_cast<int>(i));
    if (i == 15 && !went_back) {
      coordinator = std::thread([&] {
        for (const auto& shard : run.shards) shard->Follow(run.view.number() + 1);
        for (const auto& slot : run.slots) slot->GoBack(7, saved);
        run.view.set_generation(2);
        run.Publish();
      });
    }
    absl::Status status = (*exchange)->PushPull(i, gradient, absl::MakeSpan(parameters));
    if (i == 15 && !went_back) {
      // It may have been pushed before the shards went back.
      coordinator.join();
      if (status.ok()) status = (*exchange)->PushPull(16, gradient, absl::MakeSpan(parameters));
    }
    if (!status.ok()) {
      INFO(status.ToString());
      REQUIRE((*exchange)->went_back());
      REQUIRE_FALSE(went_back);
      went_back = true;
      const absl::StatusOr<int64_t> start = (*exchange)->Resume();
      INFO(start.status().ToString());
      REQUIRE(start.ok());
      REQUIRE(*start == 7);
      REQUIRE((*exchange)->Pull(absl::MakeSpan(parameters)).ok());
      expected = saved;
      arriving.GoBack();
      REQUIRE(AreSame(model, parameters, expected));
      i = *start;
      continue;
    }
    Subtract(model, arriving.Push(i, gradient), &expected);
    REQUIRE(AreSame(model, parameters, expected));
    ++i;
  }
  CHECK(went_back);
  CHECK(run.Leave(exchange->get()).ok());
}

}  // namespace evenshard
