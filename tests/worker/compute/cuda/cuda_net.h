#ifndef EVENSHARD_TESTS_WORKER_COMPUTE_CUDA_CUDA_NET_H_
#define EVENSHARD_TESTS_WORKER_COMPUTE_CUDA_CUDA_NET_H_

#include <memory>
#include <vector>

#include "tests/worker/compute/test_net.h"
#include "worker/compute/cuda/backend.h"

namespace evenshard {

// The tests of the CUDA backend are built twice: with the real libraries, to run on machines with a
// device, and with tests/testing/cuda, to run everywhere. Each test begins with this call. It
// provides a fresh stand-in, or, if the machine has no device, says that the test is skipped and
// returns false.
bool HasDevice();
extern const bool kOnStandIn;

std::unique_ptr<CudaBackend> MakeCudaBackend(const Model& model,
                                             const CudaBackend::Options& options);

// A backend that gets a net's parameters in the way a trainer gives them.
class CudaNet {
 public:
  // `net` must outlive this object.
  CudaNet(const TestNet& net, CudaBackend::Options options);

  CudaBackend& backend() { return *backend_; }
  absl::Span<const float> parameters() const { return parameters_; }
  // Gives the device the current parameters of the net.
  void Refresh();
  // These functions fail the test if the backend returns an error.
  Step Train(const Batch& batch, int64_t iteration = 0);
  Step Train(const Batch& batch, int64_t iteration, LayerHooks& hooks);
  BatchResult Evaluate(const Batch& batch);

 private:
  const TestNet& net_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::unique_ptr<CudaBackend> backend_;  // destroyed first, since it may use the buffers
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_COMPUTE_CUDA_CUDA_NET_H_
