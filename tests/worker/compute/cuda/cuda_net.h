#ifndef PS_TESTS_WORKER_COMPUTE_CUDA_CUDA_NET_H_
#define PS_TESTS_WORKER_COMPUTE_CUDA_CUDA_NET_H_

#include <memory>
#include <vector>

#include "tests/worker/compute/test_net.h"
#include "worker/compute/cuda/backend.h"

namespace ps {

// The tests of the CUDA backend are built twice: against the real libraries, to run where a device
// is, and against tests/testing/cuda, to run everywhere. Each begins with this: it gives a fresh
// stand-in, or says that the test is skipped and returns false where there is no device.
bool HasDevice();
extern const bool kOnStandIn;

std::unique_ptr<CudaBackend> MakeCudaBackend(const Model& model,
                                             const CudaBackend::Options& options);

// A backend with the parameters of a net, as a trainer gives it them.
class CudaNet {
 public:
  // `net` must outlive it.
  CudaNet(const TestNet& net, CudaBackend::Options options);

  CudaBackend& backend() { return *backend_; }
  absl::Span<const float> parameters() const { return parameters_; }
  // Gives the device the net's parameters as they are now.
  void Refresh();
  // Each fails the test where the backend returns an error.
  Step Train(const Batch& batch, int64_t iteration = 0);
  Step Train(const Batch& batch, int64_t iteration, LayerHooks& hooks);
  BatchResult Evaluate(const Batch& batch);

 private:
  const TestNet& net_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::unique_ptr<CudaBackend> backend_;  // may hold on to the buffers before it
};

}  // namespace ps

#endif  // PS_TESTS_WORKER_COMPUTE_CUDA_CUDA_NET_H_
