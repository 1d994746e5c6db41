#include <utility>

#include "worker/compute/cpu/layers.h"

namespace evenshard {
namespace {

using dnnl::memory;

// The layer works in place, so only the output is left to compute the derivative from. A dropout
// layer may overwrite that output in turn. It scales the positive values, or sets them to 0 where
// it sets the gradient to 0 as well, so the derivative stays right.
constexpr auto kAlgorithm = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
constexpr float kSlopeBelowZero = 0;

dnnl::eltwise_forward::primitive_desc DescribeForward(const CpuDevice& device,
                                                      const memory::desc& desc) {
  return device.Describe<dnnl::eltwise_forward>(
      {dnnl::prop_kind::forward_training, kAlgorithm, desc, kSlopeBelowZero});
}

// Note that oneDNN's ReLU gives 0 for NaN on most processors, where the CUDA backend's passes it
// on.
class CpuRelu : public CpuLayer {
 public:
  CpuRelu(CpuDevice* device, Activation input)
      : CpuLayer(std::move(input)),
        forward_(device, DescribeForward(*device, input_.value.get_desc())),
        backward_(MakeCpuReluGradient(device, input_.value.get_desc())) {
    output_ = input_;
  }

  void Forward(const ForwardPass& pass) override {
    forward_.Run({{DNNL_ARG_SRC, input_.value}, {DNNL_ARG_DST, output_.value}});
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    backward_.Run({{DNNL_ARG_DST, output_.value},
                   {DNNL_ARG_DIFF_DST, output_.gradient},
                   {DNNL_ARG_DIFF_SRC, input_.gradient}});
  }

 private:
  const CpuOperation forward_, backward_;
};

}  // namespace

CpuOperation MakeCpuReluGradient(CpuDevice* device, const memory::desc& desc) {
  return {device, device->Describe<dnnl::eltwise_backward>(
                      {kAlgorithm, desc, desc, kSlopeBelowZero}, DescribeForward(*device, desc))};
}

std::unique_ptr<CpuLayer> MakeCpuRelu(CpuDevice* device, Activation input) {
  return std::make_unique<CpuRelu>(device, std::move(input));
}

}  // namespace evenshard
