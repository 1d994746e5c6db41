#include "worker/compute/cpu/residual.h"

#include <algorithm>
#include <utility>

#include "worker/compute/cpu/layers.h"

namespace evenshard {
namespace {

using dnnl::memory;

class CpuResidualEnd : public CpuLayer {
 public:
  CpuResidualEnd(CpuDevice* device, Activation body, Activation shortcut)
      : CpuLayer(std::move(body)),
        shortcut_(std::move(shortcut)),
        // The sum is computed in the format of the body, which usually is the format of a
        // convolution.
        shortcut_value_(device, shortcut_.value.get_desc(), input_.value.get_desc()) {
    const memory::desc desc = input_.value.get_desc();
    dnnl::post_ops relu;
    relu.append_eltwise(/*scale=*/1, dnnl::algorithm::eltwise_relu, /*alpha=*/0, /*beta=*/0);
    add_.emplace(device,
                 dnnl::binary::primitive_desc({dnnl::algorithm::binary_add, desc, desc, desc},
                                              device->AttributesWith(relu), device->engine()));
    output_.value = device->Allocate(desc);
    if (!input_.gradient && !shortcut_.gradient) return;
    output_.gradient = device->Unallocated(desc);
    backward_ = MakeCpuReluGradient(device, desc);
    if (shortcut_.gradient) {
      shortcut_gradient_.emplace(device, desc, shortcut_.gradient.get_desc());
    }
  }

  void Forward(const ForwardPass& pass) override {
    add_->Run({{DNNL_ARG_SRC_0, input_.value},
               {DNNL_ARG_SRC_1, shortcut_value_.Get(shortcut_.value)},
               {DNNL_ARG_DST, output_.value}});
  }

  // Both inputs get the same gradient, but in separate memory: their layers may work in place.
  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    if (input_.gradient) RunRelu(input_.gradient);
    if (!shortcut_gradient_) return;
    RunRelu(shortcut_gradient_->Begin(shortcut_.gradient));
    shortcut_gradient_->Finish(shortcut_.gradient);
  }

  std::vector<memory> gradients() const override {
    return {input_.gradient, shortcut_.gradient, output_.gradient};
  }

 private:
  void RunRelu(const memory& gradient) const {
    backward_->Run({{DNNL_ARG_DST, output_.value},
                    {DNNL_ARG_DIFF_DST, output_.gradient},
                    {DNNL_ARG_DIFF_SRC, gradient}});
  }

  const Activation shortcut_;
  const ConvertedSource shortcut_value_;
  std::optional<CpuOperation> add_;
  std::optional<CpuOperation> backward_;
  std::optional<ConvertedDestination> shortcut_gradient_;
};

}  // namespace

CpuFork::CpuFork(CpuDevice* device, Activation input, const std::vector<bool>& overwritten)
    : CpuLayer(std::move(input)) {
  output_ = input_;
  const memory::desc desc = input_.value.get_desc();
  for (const bool needs_copy : overwritten) {
    Activation& branch = branches_.emplace_back(input_);
    if (needs_copy) branch.value = device->Allocate(desc);
    if (input_.gradient) branch.gradient = device->Unallocated(desc);
  }
  if (std::find(overwritten.begin(), overwritten.end(), true) != overwritten.end()) {
    copy_.emplace(device, dnnl::reorder::primitive_desc(device->engine(), desc, device->engine(),
                                                        desc, device->attributes()));
  }
  if (input_.gradient) {
    sum_.emplace(device,
                 dnnl::sum::primitive_desc(desc, std::vector<float>(branches_.size(), 1.0f),
                                           std::vector<memory::desc>(branches_.size(), desc),
                                           device->engine(), device->attributes()));
  }
}

void CpuFork::Forward(const ForwardPass& pass) {
  for (const Activation& branch : branches_) {
    if (branch.value == input_.value) continue;
    copy_->Run({{DNNL_ARG_FROM, input_.value}, {DNNL_ARG_TO, branch.value}});
  }
}

void CpuFork::Backward(absl::Span<const float> parameters, absl::Span<float> gradients) {
  CpuArguments arguments = {{DNNL_ARG_DST, input_.gradient}};
  for (size_t i = 0; i < branches_.size(); ++i) {
    arguments.emplace(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), branches_[i].gradient);
  }
  sum_->Run(std::move(arguments));
}

std::vector<memory> CpuFork::gradients() const {
  std::vector<memory> gradients = {input_.gradient};
  for (const Activation& branch : branches_) gradients.push_back(branch.gradient);
  return gradients;
}

std::unique_ptr<CpuLayer> MakeCpuResidualEnd(CpuDevice* device, Activation body,
                                             Activation shortcut) {
  return std::make_unique<CpuResidualEnd>(device, std::move(body), std::move(shortcut));
}

}  // namespace evenshard
