#ifndef PS_WORKER_COMPUTE_CUDA_RESIDUAL_H_
#define PS_WORKER_COMPUTE_CUDA_RESIDUAL_H_

#include <memory>
#include <vector>

#include "worker/compute/cuda/layer.h"

namespace ps {

// Where several layers read one activation. Each gets a branch: the value, and a gradient of its
// own to write; Backward adds the gradients up.
class CudaFork : public CudaLayer {
 public:
  // `overwritten`: for each branch, whether its layer writes over the value: it gets a copy.
  CudaFork(const CudaContext& context, CudaActivation input, const std::vector<bool>& overwritten);

  const CudaActivation& branch(int index) const { return branches_[index]; }

  void Forward(const CudaPass& pass) override;
  void Backward(const CudaPass& pass) override;
  std::vector<CudaArrayPtr> gradients() const override;

 private:
  std::vector<CudaActivation> branches_;
};

// The end of a residual block: relu(body + shortcut) (He, Zhang, Ren, Sun 2016, eq. 1).
std::unique_ptr<CudaLayer> MakeCudaResidualEnd(const CudaContext& context, CudaActivation body,
                                               CudaActivation shortcut);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_RESIDUAL_H_
