#include <optional>
#include <utility>

#include "worker/compute/cpu/layers.h"

namespace evenshard {
namespace {

using dnnl::memory;
using ForwardDescription = dnnl::eltwise_forward::primitive_desc;
using BackwardDescription = dnnl::eltwise_backward::primitive_desc;

// The layer works in place, so only the output is left to compute the derivative from. A dropout
// layer may overwrite that output in turn. It scales the positive values, or sets them to 0 where
// it sets the gradient to 0 as well, so the derivative stays right.
constexpr auto kAlgorithm = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;

// Note that oneDNN's ReLU gives 0 for NaN on most processors, where the CUDA backend's passes it
// on.
class CpuRelu : public CpuLayer {
 public:
  CpuRelu(CpuDevice* device, Activation input) : CpuLayer(std::move(input)) {
    const memory::desc desc = input_.value.get_desc();
    const float slope_below_zero = 0;
    const ForwardDescription forward(
        {dnnl::prop_kind::forward_training, kAlgorithm, desc, slope_below_zero},
        device->attributes(), device->engine());
    forward_.emplace(device, forward);
    backward_.emplace(device, BackwardDescription({kAlgorithm, desc, desc, slope_below_zero},
                                                  device->attributes(), device->engine(), forward));
    output_ = input_;
  }

  void Forward(const ForwardPass& pass) override {
    forward_->Run({{DNNL_ARG_SRC, input_.value}, {DNNL_ARG_DST, output_.value}});
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    backward_->Run({{DNNL_ARG_DST, output_.value},
                    {DNNL_ARG_DIFF_DST, output_.gradient},
                    {DNNL_ARG_DIFF_SRC, input_.gradient}});
  }

 private:
  std::optional<CpuOperation> forward_;
  std::optional<CpuOperation> backward_;
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuRelu(CpuDevice* device, Activation input) {
  return std::make_unique<CpuRelu>(device, std::move(input));
}

}  // namespace evenshard
