#ifndef EVENSHARD_WORKER_COMPUTE_EMULATED_DEVICE_H_
#define EVENSHARD_WORKER_COMPUTE_EMULATED_DEVICE_H_

#include <algorithm>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/plan/device_profile.h"
#include "worker/compute/layer_hooks.h"

namespace evenshard {

// The time that a pass takes on an emulated device, which works through the layers without a pause
// except where it waits for a layer's parameters. It is not delayed when the calling thread wakes
// up late or spends time between the calls. Not thread-safe.
class EmulatedDevice {
 public:
  struct Options {
    std::vector<LayerTime> times = {};  // one per layer
    const Clock* clock = nullptr;       // must outlive the device
    std::stop_token stop = {};          // ends waits with CANCELLED
  };

  explicit EmulatedDevice(Options options) : options_(std::move(options)) {}

  int layers() const { return static_cast<int>(options_.times.size()); }

  // Begins a pass.
  void Start() {
    free_ = options_.clock->Now();
    forward_ = 0;
    backward_ = layers();
  }
  // Waits until the device needs the parameters of a layer, and then for `hooks` to have them.
  absl::Status AwaitParameters(int layer, LayerHooks& hooks) {
    for (; forward_ < layer; ++forward_) {
      free_ += absl::Seconds(options_.times[forward_].forward_seconds);
    }
    if (absl::Status waited = Await(); !waited.ok()) return waited;
    const absl::Time before = options_.clock->Now();
    absl::Status status = hooks.AwaitParameters(layer);
    // Assigning Now() instead would add this thread's late wake-ups to the device's time.
    free_ += options_.clock->Now() - before;
    return status;
  }
  // Waits until the device has the gradients of a layer; -1: until the pass is over.
  absl::Status AwaitGradients(int layer) {
    for (; forward_ < layers(); ++forward_) {
      free_ += absl::Seconds(options_.times[forward_].forward_seconds);
    }
    while (backward_ > std::max(layer, 0)) {
      free_ += absl::Seconds(options_.times[--backward_].backward_seconds);
    }
    return Await();
  }

 private:
  absl::Status Await() const {
    if (free_ <= options_.clock->Now()) return absl::OkStatus();
    if (options_.clock->SleepUntil(free_, options_.stop)) return absl::OkStatus();
    return absl::CancelledError("the emulated device was told to stop");
  }

  const Options options_;
  absl::Time free_;   // when the device finishes the work that it was given
  int forward_ = 0;   // the first layer whose forward pass it was not given
  int backward_ = 0;  // the last layer whose backward pass it was given
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_EMULATED_DEVICE_H_
