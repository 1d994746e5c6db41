#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_RESIDUAL_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_RESIDUAL_H_

#include <memory>
#include <vector>

#include "worker/compute/cuda/layer.h"

namespace evenshard {

// Lets several layers read one activation. Each layer gets a branch, which has the activation's
// value and a gradient of its own. Backward adds up the branches' gradients.
class CudaFork : public CudaLayer {
 public:
  // `overwritten` says, by branch, whether the layer that reads the branch overwrites it. Such a
  // branch gets a copy of the value.
  CudaFork(const CudaContext& context, CudaActivation input, const std::vector<bool>& overwritten);

  const CudaActivation& branch(int index) const { return branches_[index]; }

  void Forward(const CudaPass& pass) override;
  void Backward(const CudaPass& pass) override;
  std::vector<CudaArrayPtr> gradients() const override;

 private:
  std::vector<CudaActivation> branches_;
};

// Makes the end of a residual block: relu(body + shortcut) (He, Zhang, Ren, Sun 2016, eq. 1).
std::unique_ptr<CudaLayer> MakeCudaResidualEnd(const CudaContext& context, CudaActivation body,
                                               CudaActivation shortcut);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_RESIDUAL_H_
