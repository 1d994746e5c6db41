#include "worker/compute/paced_backend.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

// Takes a time of its own for each layer of three, of which the second has no tensors.
class SlowBackend final : public ComputeBackend {
 public:
  SlowBackend(FakeClock* clock, double layer_seconds)
      : clock_(clock), layer_seconds_(layer_seconds) {}

  absl::StatusOr<BatchResult> ForwardBackward(const Batch&, absl::Span<const float>, int64_t,
                                              absl::Span<float>, LayerHooks& hooks) override {
    for (const int layer : {0, 2}) {
      if (const absl::Status status = hooks.AwaitParameters(layer); !status.ok()) return status;
      clock_->Advance(absl::Seconds(layer_seconds_));
    }
    for (const int layer : {2, 0}) {
      clock_->Advance(absl::Seconds(layer_seconds_));
      if (const absl::Status status = hooks.GradientReady(layer); !status.ok()) return status;
    }
    return BatchResult{.loss = 7};
  }
  absl::StatusOr<BatchResult> Evaluate(const Batch&, absl::Span<const float>) override {
    return BatchResult();
  }

 private:
  FakeClock* const clock_;
  const double layer_seconds_;
};

using Events = std::vector<std::pair<std::string, double>>;

struct Recorded {
  Events events;
  double pass_seconds = 0;
};

// The forward passes take 1, 2 and 4 s on the device, the backward passes 10, 20 and 40 s.
Recorded Run(double layer_seconds, double parameters_take = 0) {
  FakeClock clock;
  class Hooks final : public LayerHooks {
   public:
    Hooks(FakeClock* clock, double parameters_take)
        : clock_(clock), parameters_take_(parameters_take), start_(clock->Now()) {}
    absl::Status AwaitParameters(int layer) override {
      events.emplace_back("forward " + std::to_string(layer), Seconds());
      clock_->Advance(absl::Seconds(parameters_take_));
      return absl::OkStatus();
    }
    absl::Status GradientReady(int layer) override {
      events.emplace_back("backward " + std::to_string(layer), Seconds());
      return absl::OkStatus();
    }
    double Seconds() const { return absl::ToDoubleSeconds(clock_->Now() - start_); }
    Events events;

   private:
    FakeClock* const clock_;
    const double parameters_take_;
    const absl::Time start_;
  };
  Hooks hooks(&clock, parameters_take);
  PacedBackend backend(
      std::make_unique<SlowBackend>(&clock, layer_seconds),
      EmulatedDevice::Options{.times = {{1, 10}, {2, 20}, {4, 40}}, .clock = &clock});
  const auto result = backend.ForwardBackward({}, {}, 0, {}, hooks);
  REQUIRE(result.ok());
  CHECK(result->loss == 7);
  return {hooks.events, hooks.Seconds()};
}

}  // namespace

TEST_CASE("a faster backend takes the device's time") {
  const Recorded recorded = Run(0.5);
  CHECK(recorded.events ==
        Events{{"forward 0", 0}, {"forward 2", 3}, {"backward 2", 47}, {"backward 0", 77}});
  CHECK(recorded.pass_seconds == 77);
}

TEST_CASE("the device stands still while parameters are waited for") {
  const Recorded recorded = Run(0.5, /*parameters_take=*/5);
  CHECK(recorded.events ==
        Events{{"forward 0", 0}, {"forward 2", 8}, {"backward 2", 57}, {"backward 0", 87}});
}

TEST_CASE("a slower backend takes its own time") { CHECK(Run(100).pass_seconds == 400); }

}  // namespace evenshard
