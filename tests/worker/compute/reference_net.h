#ifndef EVENSHARD_TESTS_WORKER_COMPUTE_REFERENCE_NET_H_
#define EVENSHARD_TESTS_WORKER_COMPUTE_REFERENCE_NET_H_

#include <cstdint>
#include <vector>

#include "common/placement/model/model.h"
#include "tests/worker/compute/test_net.h"

namespace evenshard {

// The parts of a pass that dropout and batch normalisation depend on.
struct ReferencePass {
  bool training = true;
  uint64_t seed = 1;
  int rank = 0;
  int64_t iteration = 0;
};

// Returns the mean softmax cross-entropy of a model, computed in float64 directly from the
// definitions of its layers. All backends are compared with it. `parameters` is laid out as Model
// defines.
double ReferenceLoss(const TestNet& net, const std::vector<double>& parameters,
                     const ReferencePass& pass);

// Returns the gradient of that loss with respect to the elements of a tensor. It is computed with
// central differences, whose step is so small that the error is about 1e-8.
std::vector<double> ReferenceGradient(const TestNet& net, const Tensor& tensor,
                                      const ReferencePass& pass);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_COMPUTE_REFERENCE_NET_H_
