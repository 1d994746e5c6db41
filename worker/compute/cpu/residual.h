#ifndef EVENSHARD_WORKER_COMPUTE_CPU_RESIDUAL_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_RESIDUAL_H_

#include <memory>
#include <optional>
#include <vector>

#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace evenshard {

// Lets several layers read one activation, as at the beginning of a residual block. Each layer gets
// a branch, which has the activation's value and a gradient of its own. Backward adds up the
// branches' gradients.
class CpuFork : public CpuLayer {
 public:
  // `overwritten` says, by branch, whether the layer that reads the branch overwrites it. Such a
  // branch gets a copy of the value.
  CpuFork(CpuDevice* device, Activation input, const std::vector<bool>& overwritten);

  const Activation& branch(int index) const { return branches_[index]; }

  void Forward(const ForwardPass& pass) override;
  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override;
  std::vector<dnnl::memory> gradients() const override;

 private:
  std::vector<Activation> branches_;
  std::optional<CpuOperation> copy_;  // absent if no branch needs a copy
  std::optional<CpuOperation> sum_;   // absent if the gradient is not needed
};

// Makes the end of a residual block: relu(body + shortcut) (He, Zhang, Ren, Sun 2016, eq. 1).
std::unique_ptr<CpuLayer> MakeCpuResidualEnd(CpuDevice* device, Activation body,
                                             Activation shortcut);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_RESIDUAL_H_
