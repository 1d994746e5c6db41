#include "worker/reporting/usage_reporter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

// Computes nothing, on the given device.
class FakeBackend final : public ComputeBackend {
 public:
  explicit FakeBackend(std::optional<DeviceUsage> device) : device_(std::move(device)) {}

  absl::StatusOr<BatchResult> ForwardBackward(const Batch&, absl::Span<const float>, int64_t,
                                              absl::Span<float>, LayerHooks&) override {
    return absl::UnimplementedError("not used");
  }
  absl::StatusOr<BatchResult> Evaluate(const Batch&, absl::Span<const float>) override {
    return absl::UnimplementedError("not used");
  }
  std::optional<DeviceUsage> Usage() const override { return device_; }

 private:
  const std::optional<DeviceUsage> device_;
};

// Takes `count` reports, each with `answer`; one more waits until it is stopped.
class Receiver {
 public:
  explicit Receiver(size_t count, absl::Status answer = absl::OkStatus())
      : count_(count), answer_(std::move(answer)) {}

  absl::Status Send(const WorkerUsage& usage, const std::stop_token& stop) {
    {
      absl::MutexLock lock(&mutex_);
      if (reports_.size() < count_) {
        reports_.push_back(usage);
        return answer_;
      }
      waits_ = true;
    }
    absl::Notification stopped;
    const std::stop_callback on_stop(stop, [&] { stopped.Notify(); });
    stopped.WaitForNotification();
    return absl::CancelledError("stopped");
  }

  // The reports, once all are there and the next one waits.
  std::vector<WorkerUsage> Await() {
    absl::MutexLock lock(&mutex_);
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&waits_), absl::Seconds(60)));
    return reports_;
  }

 private:
  const size_t count_;
  const absl::Status answer_;
  absl::Mutex mutex_;
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<WorkerUsage> reports_ ABSL_GUARDED_BY(mutex_);
};

// What `receiver` has got from a reporter that has ended.
std::vector<WorkerUsage> Reports(
    Receiver& receiver, const std::optional<DeviceUsage>& device,
    const std::string& nvml_library = "/nowhere",
    const std::function<TrainingTotals()>& totals = [] { return TrainingTotals(); }) {
  const FakeBackend backend(device);
  const FakeClock clock;
  const UsageReporter reporter({
      .backend = &backend,
      .clock = &clock,
      .totals = totals,
      .send = [&](const WorkerUsage& usage,
                  const std::stop_token& stop) { return receiver.Send(usage, stop); },
      .nvml_library = nvml_library,
  });
  return receiver.Await();
}

const DeviceUsage kDevice = {"NVIDIA H200", "0000:65:00.0", 9'000'000'000};

}  // namespace

TEST_CASE("on a CPU a worker reports its host memory alone, until it has trained") {
  Receiver receiver(1);
  const WorkerUsage usage = Reports(receiver, std::nullopt)[0];
  CHECK(usage.resident_bytes() > 1'000'000);
  CHECK(usage.device().empty());
  CHECK(usage.pci_bus_id().empty());
  CHECK(usage.device_bytes() == 0);
  CHECK_FALSE(usage.has_device_utilization_percent());
  CHECK_FALSE(usage.has_device_memory_used_bytes());
  CHECK_FALSE(usage.has_device_memory_total_bytes());
  CHECK_FALSE(usage.has_images_per_second());
  CHECK_FALSE(usage.has_exchange_wait_fraction());
}

TEST_CASE("a worker reports its device and NVML's values for it") {
  Receiver receiver(1);
  const WorkerUsage usage = Reports(receiver, kDevice, "tests/worker/reporting/libfake_nvml.so")[0];
  CHECK(usage.device() == "NVIDIA H200");
  CHECK(usage.pci_bus_id() == "0000:65:00.0");
  CHECK(usage.device_bytes() == 9'000'000'000);
  CHECK(usage.device_utilization_percent() == 98);
  CHECK(usage.device_memory_used_bytes() == 21'000'000'000);
  CHECK(usage.device_memory_total_bytes() == 150'000'000'000);
}

TEST_CASE("without NVML a worker reports its device all the same") {
  Receiver receiver(1);
  const WorkerUsage usage = Reports(receiver, kDevice)[0];
  CHECK(usage.device_bytes() == 9'000'000'000);
  CHECK_FALSE(usage.has_device_utilization_percent());
  CHECK_FALSE(usage.has_device_memory_used_bytes());
}

TEST_CASE("rates cover the time since the previous report, or are the last known ones") {
  Receiver receiver(4);
  // Nothing yet; an iteration; none since; two more.
  const std::vector<TrainingTotals> totals = {
      {}, {64, 0.5, 0.25}, {64, 0.5, 0.25}, {192, 2.5, 0.75}};
  size_t next = 0;
  const auto reports = Reports(receiver, std::nullopt, "",
                               [&] { return totals[std::min(next++, totals.size() - 1)]; });
  REQUIRE(reports.size() == 4);
  CHECK_FALSE(reports[0].has_images_per_second());
  CHECK(reports[1].images_per_second() == 128);
  CHECK(reports[1].exchange_wait_fraction() == 0.5);
  CHECK(reports[2].images_per_second() == 128);
  CHECK(reports[2].exchange_wait_fraction() == 0.5);
  CHECK(reports[3].images_per_second() == 64);
  CHECK(reports[3].exchange_wait_fraction() == 0.25);
}

TEST_CASE("reports that fail are followed by others") {
  Receiver receiver(3, absl::UnavailableError("shard 0 is away"));
  CHECK(Reports(receiver, std::nullopt).size() == 3);
}

}  // namespace evenshard
