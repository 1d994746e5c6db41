#ifndef EVENSHARD_TESTS_WORKER_COMPUTE_TEST_NET_H_
#define EVENSHARD_TESTS_WORKER_COMPUTE_TEST_NET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "worker/compute/backend.h"
#include "worker/compute/cpu/backend.h"

namespace evenshard {

// A model with parameters and one batch. All of them are random numbers that follow from the spec
// and the seed. Fails the test if the spec is invalid.
struct TestNet {
  // `spec` is a ModelSpec in protobuf text format.
  TestNet(const std::string& spec, int64_t images, uint64_t seed = 1);

  Model model;
  std::vector<float> parameters;
  std::vector<float> images;
  std::vector<int32_t> labels;

  // Returns a batch of the first `size` images.
  Batch FirstImages(int64_t size) const;
  Batch All() const { return FirstImages(labels.size()); }
  const Tensor& tensor(const std::string& name) const;
  // Sets each element of a tensor to a function of its index.
  void Set(const std::string& name, const std::function<float(int64_t)>& value);
};

Model ParseModel(const std::string& spec);

// Both functions fail the test if the backend returns an error.
std::unique_ptr<CpuBackend> MakeBackend(const Model& model, const CpuBackend::Options& options);
struct Step {
  BatchResult result;
  std::vector<float> gradients;  // the whole buffer
};
Step RunStep(ComputeBackend& backend, const TestNet& net, const Batch& batch,
             int64_t iteration = 0);

// Records the calls of a backend as "forward 0", "backward 3". The call named `failing` fails.
class RecordedHooks : public LayerHooks {
 public:
  explicit RecordedHooks(std::string failing = "") : failing_(std::move(failing)) {}

  absl::Status AwaitParameters(int layer) override {
    return Record("forward " + std::to_string(layer));
  }
  absl::Status GradientReady(int layer) override {
    return Record("backward " + std::to_string(layer));
  }
  const std::vector<std::string>& events() const { return events_; }

 private:
  absl::Status Record(const std::string& event) {
    events_.push_back(event);
    return event == failing_ ? absl::AbortedError(event + " failed") : absl::OkStatus();
  }

  const std::string failing_;
  std::vector<std::string> events_;
};

// Returns the largest difference between two elements, divided by the largest element of
// `expected`.
double RelativeError(absl::Span<const float> actual, absl::Span<const float> expected);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_COMPUTE_TEST_NET_H_
