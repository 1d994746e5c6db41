#include <optional>
#include <unordered_map>
#include <utility>

#include "worker/compute/cpu/layers.h"
#include "worker/compute/cpu/tensor.h"

namespace evenshard {
namespace {

using dnnl::memory;
using Formats = std::unordered_map<int, memory::desc>;  // by argument

// An operation that chose the formats of its arguments. The caller's memory may have others.
class ConvertedOperation {
 public:
  // `sources` and `results` are the caller's formats of the arguments that are to be converted.
  template <typename Description>
  ConvertedOperation(CpuDevice* device, const Description& description, const Formats& sources,
                     const Formats& results)
      : operation_(device, description) {
    const auto chosen = [&](int argument) {
      return description.query_md(dnnl::query::exec_arg_md, argument);
    };
    for (const auto& [argument, format] : sources) {
      sources_.emplace(argument, ConvertedSource(device, format, chosen(argument)));
    }
    for (const auto& [argument, format] : results) {
      results_.emplace(argument, ConvertedDestination(device, chosen(argument), format));
    }
  }

  void Run(const CpuArguments& arguments) const {
    CpuArguments converted = arguments;
    for (const auto& [argument, source] : sources_) {
      converted[argument] = source.Get(arguments.at(argument));
    }
    for (const auto& [argument, result] : results_) {
      converted[argument] = result.Begin(arguments.at(argument));
    }
    operation_.Run(std::move(converted));
    for (const auto& [argument, result] : results_) result.Finish(arguments.at(argument));
  }

 private:
  CpuOperation operation_;
  std::unordered_map<int, ConvertedSource> sources_;
  std::unordered_map<int, ConvertedDestination> results_;
};

class CpuConvolution : public CpuLayer {
 public:
  CpuConvolution(CpuDevice* device, const Model& model, const Layer& layer, Activation input)
      : CpuLayer(std::move(input)), weights_(*device, model.tensors()[layer.first_tensor]) {
    const Conv2d& conv = layer.spec.conv();
    const memory::desc source = input_.value.get_desc();
    // All formats are left open.
    const memory::desc any_source = AnyFormat(source.dims());
    const memory::desc any_weights = AnyFormat(weights_.desc().dims());
    const memory::desc any_output = AnyFormat(
        {source.dims()[0], layer.output.channels, layer.output.height, layer.output.width});
    memory::desc any_bias;  // zero dimensions if there is none
    if (conv.bias()) {
      bias_.emplace(*device, model.tensors()[layer.first_tensor + 1]);
      any_bias = AnyFormat(bias_->desc().dims());
    }
    const memory::dims strides = {conv.stride(), conv.stride()};
    const memory::dims padding = {conv.padding(), conv.padding()};
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;

    const auto forward = device->Describe<dnnl::convolution_forward>(
        {dnnl::prop_kind::forward_training, kDirect, any_source, any_weights, any_bias, any_output,
         strides, padding, padding});
    const Formats reads = {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights_.desc()}};
    forward_.emplace(device, forward, reads, Formats());
    output_.value = device->Allocate(forward.dst_desc());
    output_.gradient = device->Unallocated(forward.dst_desc());

    const auto by_weights = device->Describe<dnnl::convolution_backward_weights>(
        {kDirect, any_source, any_weights, any_bias, any_output, strides, padding, padding},
        forward);
    const std::pair output_gradient(DNNL_ARG_DIFF_DST, forward.dst_desc());
    weights_gradient_.emplace(device, by_weights, Formats{{DNNL_ARG_SRC, source}, output_gradient},
                              Formats{{DNNL_ARG_DIFF_WEIGHTS, weights_.desc()}});
    if (!input_.gradient) return;
    const auto by_input = device->Describe<dnnl::convolution_backward_data>(
        {kDirect, any_source, any_weights, any_output, strides, padding, padding}, forward);
    input_gradient_.emplace(device, by_input,
                            Formats{{DNNL_ARG_WEIGHTS, weights_.desc()}, output_gradient},
                            Formats{{DNNL_ARG_DIFF_SRC, source}});
  }

  void Forward(const ForwardPass& pass) override {
    CpuArguments arguments = {{DNNL_ARG_SRC, input_.value},
                              {DNNL_ARG_WEIGHTS, weights_.InParameters(pass.parameters)},
                              {DNNL_ARG_DST, output_.value}};
    if (bias_) arguments.emplace(DNNL_ARG_BIAS, bias_->InParameters(pass.parameters));
    forward_->Run(arguments);
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    CpuArguments arguments = {{DNNL_ARG_SRC, input_.value},
                              {DNNL_ARG_DIFF_DST, output_.gradient},
                              {DNNL_ARG_DIFF_WEIGHTS, weights_.InGradients(gradients)}};
    if (bias_) arguments.emplace(DNNL_ARG_DIFF_BIAS, bias_->InGradients(gradients));
    weights_gradient_->Run(arguments);
    if (!input_gradient_) return;
    input_gradient_->Run({{DNNL_ARG_WEIGHTS, weights_.InParameters(parameters)},
                          {DNNL_ARG_DIFF_DST, output_.gradient},
                          {DNNL_ARG_DIFF_SRC, input_.gradient}});
  }

 private:
  const CpuTensor weights_;
  std::optional<CpuTensor> bias_;
  std::optional<ConvertedOperation> forward_, weights_gradient_, input_gradient_;
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuConvolution(CpuDevice* device, const Model& model,
                                             const Layer& layer, Activation input) {
  return std::make_unique<CpuConvolution>(device, model, layer, std::move(input));
}

}  // namespace evenshard
