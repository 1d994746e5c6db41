#include <optional>
#include <utility>

#include "worker/compute/cpu/layers.h"
#include "worker/compute/cpu/tensor.h"

namespace evenshard {
namespace {

using dnnl::memory;

class CpuLinear : public CpuLayer {
 public:
  CpuLinear(CpuDevice* device, const Model& model, const Layer& layer, Activation input)
      : CpuLayer(std::move(input)),
        device_(device),
        plain_input_(PlainFormat(input_.value.get_desc().dims())),
        flat_input_(PlainFormat({plain_input_.dims()[0], layer.input.size()})),
        flat_output_(PlainFormat({plain_input_.dims()[0], layer.output.size()})),
        source_(device, input_.value.get_desc(), plain_input_),
        weights_(*device, model.tensors()[layer.first_tensor]) {
    memory::desc bias;  // zero dimensions if there is none
    if (layer.spec.linear().bias()) {
      bias_.emplace(*device, model.tensors()[layer.first_tensor + 1]);
      bias = bias_->desc();
    }
    const auto forward = device->Describe<dnnl::inner_product_forward>(
        {dnnl::prop_kind::forward_training, flat_input_, weights_.desc(), bias, flat_output_});
    forward_.emplace(device, forward);
    backward_weights_.emplace(device,
                              device->Describe<dnnl::inner_product_backward_weights>(
                                  {flat_input_, weights_.desc(), bias, flat_output_}, forward));
    if (input_.gradient) {
      backward_data_.emplace(device, device->Describe<dnnl::inner_product_backward_data>(
                                         {flat_input_, weights_.desc(), flat_output_}, forward));
      input_gradient_.emplace(device, plain_input_, input_.gradient.get_desc());
    }
    const memory::desc output = PlainFormat({plain_input_.dims()[0], layer.output.channels, 1, 1});
    output_.value = device->Allocate(output);
    output_.gradient = device->Unallocated(output);
  }

  void Forward(const ForwardPass& pass) override {
    CpuArguments arguments = {{DNNL_ARG_SRC, Flat(source_.Get(input_.value), flat_input_)},
                              {DNNL_ARG_WEIGHTS, weights_.InParameters(pass.parameters)},
                              {DNNL_ARG_DST, Flat(output_.value, flat_output_)}};
    if (bias_) arguments.emplace(DNNL_ARG_BIAS, bias_->InParameters(pass.parameters));
    forward_->Run(std::move(arguments));
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    const memory output_gradient = Flat(output_.gradient, flat_output_);
    CpuArguments arguments = {{DNNL_ARG_SRC, Flat(source_.Get(input_.value), flat_input_)},
                              {DNNL_ARG_DIFF_DST, output_gradient},
                              {DNNL_ARG_DIFF_WEIGHTS, weights_.InGradients(gradients)}};
    if (bias_) arguments.emplace(DNNL_ARG_DIFF_BIAS, bias_->InGradients(gradients));
    backward_weights_->Run(std::move(arguments));
    if (!backward_data_) return;
    backward_data_->Run(
        {{DNNL_ARG_DIFF_DST, output_gradient},
         {DNNL_ARG_WEIGHTS, weights_.InParameters(parameters)},
         {DNNL_ARG_DIFF_SRC, Flat(input_gradient_->Begin(input_.gradient), flat_input_)}});
    input_gradient_->Finish(input_.gradient);
  }

 private:
  // Returns a view of the same plain memory as {images, features}.
  memory Flat(const memory& plain, const memory::desc& desc) const {
    return memory(desc, device_->engine(), plain.get_data_handle());
  }

  CpuDevice* const device_;
  const memory::desc plain_input_, flat_input_, flat_output_;
  const ConvertedSource source_;
  const CpuTensor weights_;
  std::optional<CpuTensor> bias_;
  std::optional<CpuOperation> forward_, backward_weights_, backward_data_;
  std::optional<ConvertedDestination> input_gradient_;
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuLinear(CpuDevice* device, const Model& model, const Layer& layer,
                                        Activation input) {
  return std::make_unique<CpuLinear>(device, model, layer, std::move(input));
}

}  // namespace evenshard
