#ifndef PS_WORKER_COMPUTE_CPU_RESIDUAL_H_
#define PS_WORKER_COMPUTE_CPU_RESIDUAL_H_

#include <memory>
#include <optional>
#include <vector>

#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// Where several layers read one activation, as at the begin of a residual block. Each gets a
// branch: the value, and a gradient of its own to write; Backward adds the gradients up.
class CpuFork : public CpuLayer {
 public:
  // `overwritten`: for each branch, whether its layer writes over the value: it gets a copy.
  CpuFork(CpuDevice* device, Activation input, const std::vector<bool>& overwritten);

  const Activation& branch(int index) const { return branches_[index]; }

  void Forward(const ForwardPass& pass) override;
  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override;
  std::vector<dnnl::memory> gradients() const override;

 private:
  std::vector<Activation> branches_;
  std::optional<CpuOperation> copy_;  // none where no branch needs one
  std::optional<CpuOperation> sum_;   // none where nobody needs the gradient
};

// The end of a residual block: relu(body + shortcut) (He, Zhang, Ren, Sun 2016, eq. 1).
std::unique_ptr<CpuLayer> MakeCpuResidualEnd(CpuDevice* device, Activation body,
                                             Activation shortcut);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_RESIDUAL_H_
