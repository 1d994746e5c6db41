#ifndef PS_TESTS_WORKER_COMPUTE_REFERENCE_NET_H_
#define PS_TESTS_WORKER_COMPUTE_REFERENCE_NET_H_

#include <cstdint>
#include <vector>

#include "common/model.h"
#include "tests/worker/compute/test_net.h"

namespace ps {

// How a pass treats dropout and batch normalisation.
struct ReferencePass {
  bool training = true;
  uint64_t seed = 1;
  int rank = 0;
  int64_t iteration = 0;
};

// The mean softmax cross-entropy of a model in float64, straight from the definitions of its
// layers: what every backend is compared with. `parameters` is laid out as Model says.
double ReferenceLoss(const TestNet& net, const std::vector<double>& parameters,
                     const ReferencePass& pass);

// The gradient of that loss by the elements of a tensor, by central differences with so small a
// step that float64 leaves them right to about 1e-8.
std::vector<double> ReferenceGradient(const TestNet& net, const Tensor& tensor,
                                      const ReferencePass& pass);

}  // namespace ps

#endif  // PS_TESTS_WORKER_COMPUTE_REFERENCE_NET_H_
