#include "worker/compute/emulated_backend.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/fake_clock.h"
#include "tests/worker/compute/test_net.h"

namespace evenshard {
namespace {

constexpr char kNet[] = R"(input { channels: 3 height: 2 width: 2 }
                           layer { name: "fc1" linear { out_features: 6 } }
                           layer { relu {} }
                           layer { name: "fc2" linear { out_features: 5 } })";

// The forward passes take 1, 2 and 4 s, the backward passes 10, 20 and 40 s.
const std::vector<LayerTime> kTimes = {{1, 10}, {2, 20}, {4, 40}};

// Records the backend's calls with their times, in seconds since the hooks were made, and then
// calls the test's own hook.
class TimedHooks : public LayerHooks {
 public:
  using Event = std::pair<std::string, double>;

  explicit TimedHooks(FakeClock* clock) : clock_(clock), start_(clock->Now()) {}

  absl::Status AwaitParameters(int layer) override {
    Note("forward " + std::to_string(layer));
    on_await(layer);
    return absl::OkStatus();
  }
  absl::Status GradientReady(int layer) override {
    Note("backward " + std::to_string(layer));
    on_ready(layer);
    return absl::OkStatus();
  }
  double Seconds() const { return absl::ToDoubleSeconds(clock_->Now() - start_); }

  std::function<void(int layer)> on_await = [](int) {};
  std::function<void(int layer)> on_ready = [](int) {};
  std::vector<Event> events;

 private:
  void Note(const std::string& event) { events.emplace_back(event, Seconds()); }

  FakeClock* const clock_;
  const absl::Time start_;
};

struct Fixture {
  absl::StatusOr<BatchResult> Run(LayerHooks& hooks) {
    return backend.ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients), hooks);
  }

  const TestNet net{kNet, 1};
  FakeClock clock;
  std::stop_source stop;
  EmulatedBackend backend{net.model, {.times = kTimes, .clock = &clock, .stop = stop.get_token()}};
  std::vector<float> gradients = std::vector<float>(net.model.buffer_size());
};

using Events = std::vector<TimedHooks::Event>;

}  // namespace

TEST_CASE("the first call fills the tensors with small values and the gaps with 0") {
  const TestNet net(kNet, 1);
  const FakeClock clock;
  EmulatedBackend backend(net.model, {.rank = 1, .clock = &clock});
  std::vector<float> gradients(net.model.buffer_size(), NAN);
  LayerHooks hooks;
  const auto result =
      backend.ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients), hooks);
  REQUIRE(result.ok());
  CHECK(result->loss == 0);
  CHECK(result->correct == 0);
  std::vector<float> rest = gradients;
  for (const Tensor& tensor : net.model.tensors()) {
    const auto begin = rest.begin() + tensor.offset;
    const auto [low, high] = std::minmax_element(begin, begin + tensor.size);
    CHECK(*low < *high);
    CHECK(*low >= -0.01f);
    CHECK(*high <= 0.01f);
    std::fill_n(begin, tensor.size, 0.0f);
  }
  CHECK(rest == std::vector<float>(rest.size(), 0.0f));

  EmulatedBackend same(net.model, {.rank = 1, .clock = &clock});
  EmulatedBackend other(net.model, {.rank = 2, .clock = &clock});
  CHECK(RunStep(same, net, net.All()).gradients == gradients);
  CHECK(RunStep(other, net, net.All()).gradients != gradients);
}

TEST_CASE("later calls leave the buffer as it is, a new buffer is filled") {
  Fixture fixture;
  const Step first = RunStep(fixture.backend, fixture.net, fixture.net.All());
  LayerHooks hooks;
  REQUIRE(fixture.Run(hooks).ok());
  CHECK(fixture.gradients == first.gradients);
  fixture.gradients[0] = 7;
  REQUIRE(fixture.Run(hooks).ok());
  CHECK(fixture.gradients[0] == 7);
}

TEST_CASE("a gradient buffer of the wrong size is refused") {
  Fixture fixture;
  fixture.gradients.pop_back();
  LayerHooks hooks;
  CHECK(fixture.Run(hooks).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("evaluation is as empty as training") {
  Fixture fixture;
  const auto result = fixture.backend.Evaluate(fixture.net.All(), fixture.net.parameters);
  REQUIRE(result.ok());
  CHECK(result->loss == 0);
}

TEST_CASE("layers come in the order and at the time of the device") {
  Fixture fixture;
  TimedHooks hooks(&fixture.clock);
  REQUIRE(fixture.Run(hooks).ok());
  CHECK(hooks.events ==
        Events{{"forward 0", 0}, {"forward 2", 3}, {"backward 2", 47}, {"backward 0", 77}});
  CHECK(hooks.Seconds() == 77);
}

TEST_CASE("a device that waits for parameters goes on when they are there") {
  Fixture fixture;
  TimedHooks hooks(&fixture.clock);
  hooks.on_await = [&](int layer) {
    if (layer == 2) fixture.clock.Advance(absl::Seconds(100));
  };
  REQUIRE(fixture.Run(hooks).ok());
  CHECK(hooks.events ==
        Events{{"forward 0", 0}, {"forward 2", 3}, {"backward 2", 147}, {"backward 0", 177}});
}

TEST_CASE("a gradient that takes time to hand over does not delay the device") {
  Fixture fixture;
  TimedHooks hooks(&fixture.clock);
  hooks.on_ready = [&](int layer) {
    // Layer 2's hook returns while the device still computes, layer 0's when it has finished.
    fixture.clock.Advance(absl::Seconds(layer == 2 ? 25 : 5));
  };
  REQUIRE(fixture.Run(hooks).ok());
  CHECK(hooks.events ==
        Events{{"forward 0", 0}, {"forward 2", 3}, {"backward 2", 47}, {"backward 0", 77}});
  CHECK(hooks.Seconds() == 82);
}

TEST_CASE("an error of a hook ends the pass") {
  for (const std::string failing : {"forward 0", "forward 2", "backward 2", "backward 0"}) {
    Fixture fixture;
    RecordedHooks hooks(failing);
    CHECK(fixture.Run(hooks).status() == absl::AbortedError(failing + " failed"));
    CHECK(hooks.events().back() == failing);
  }
}

TEST_CASE("a stop ends the device's work") {
  Fixture fixture;
  TimedHooks hooks(&fixture.clock);
  hooks.on_await = [&](int) { fixture.stop.request_stop(); };
  CHECK(absl::IsCancelled(fixture.Run(hooks).status()));
  CHECK(hooks.events == Events{{"forward 0", 0}});
}

TEST_CASE("without a device no time passes") {
  Fixture fixture;
  fixture.stop.request_stop();  // a sleep would fail
  EmulatedBackend backend(fixture.net.model,
                          {.clock = &fixture.clock, .stop = fixture.stop.get_token()});
  TimedHooks hooks(&fixture.clock);
  REQUIRE(backend
              .ForwardBackward(fixture.net.All(), fixture.net.parameters, 0,
                               absl::MakeSpan(fixture.gradients), hooks)
              .ok());
  CHECK(hooks.events.size() == 4);
  CHECK(hooks.Seconds() == 0);
}

}  // namespace evenshard
