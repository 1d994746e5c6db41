#include <optional>
#include <utility>

#include "worker/compute/cpu/layers.h"
#include "worker/compute/cpu/tensor.h"

namespace evenshard {
namespace {

using dnnl::memory;
using ForwardDescription = dnnl::convolution_forward::primitive_desc;
using DataDescription = dnnl::convolution_backward_data::primitive_desc;
using WeightsDescription = dnnl::convolution_backward_weights::primitive_desc;

// A convolution in oneDNN's terms. All formats are left open.
struct Problem {
  memory::desc input, weights, bias, output;  // bias: zero dimensions if there is none
  memory::dims strides, padding;
};

Problem DescribeProblem(const Model& model, const Layer& layer, const memory::dims& input) {
  const Conv2d& conv = layer.spec.conv();
  const Shape3& output = layer.output;
  Problem problem;
  problem.input = AnyFormat(input);
  problem.weights = AnyFormat(model.tensors()[layer.first_tensor].shape);
  if (conv.bias()) problem.bias = AnyFormat(model.tensors()[layer.first_tensor + 1].shape);
  problem.output = AnyFormat({input[0], output.channels, output.height, output.width});
  problem.strides = {conv.stride(), conv.stride()};
  problem.padding = {conv.padding(), conv.padding()};
  return problem;
}

ForwardDescription DescribeForward(const CpuDevice& device, const Problem& p) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, p.input,
           p.weights, p.bias, p.output, p.strides, p.padding, p.padding},
          device.attributes(),
          device.engine()};
}

WeightsDescription DescribeWeightsGradient(const CpuDevice& device, const Problem& p,
                                           const ForwardDescription& forward) {
  return {{dnnl::algorithm::convolution_direct, p.input, p.weights, p.bias, p.output, p.strides,
           p.padding, p.padding},
          device.attributes(),
          device.engine(),
          forward};
}

DataDescription DescribeDataGradient(const CpuDevice& device, const Problem& p,
                                     const ForwardDescription& forward) {
  return {{dnnl::algorithm::convolution_direct, p.input, p.weights, p.output, p.strides, p.padding,
           p.padding},
          device.attributes(),
          device.engine(),
          forward};
}

// The three passes. `input` and `weights` are in the caller's formats. `bias` may be empty.
class Convolve {
 public:
  Convolve(CpuDevice* device, const ForwardDescription& description, const memory::desc& input,
           const memory::desc& weights)
      : operation_(device, description),
        input_(device, input, description.src_desc()),
        weights_(device, weights, description.weights_desc()) {}

  void Run(const memory& input, const memory& weights, const memory& bias, const memory& output) {
    CpuArguments arguments = {{DNNL_ARG_SRC, input_.Get(input)},
                              {DNNL_ARG_WEIGHTS, weights_.Get(weights)},
                              {DNNL_ARG_DST, output}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, bias);
    operation_.Run(std::move(arguments));
  }

 private:
  CpuOperation operation_;
  ConvertedSource input_, weights_;
};

class WeightsGradient {
 public:
  WeightsGradient(CpuDevice* device, const WeightsDescription& description,
                  const memory::desc& input, const memory::desc& weights,
                  const memory::desc& output)
      : operation_(device, description),
        input_(device, input, description.src_desc()),
        output_gradient_(device, output, description.diff_dst_desc()),
        weights_gradient_(device, description.diff_weights_desc(), weights) {}

  void Run(const memory& input, const memory& output_gradient, const memory& weights_gradient,
           const memory& bias_gradient) {
    CpuArguments arguments = {{DNNL_ARG_SRC, input_.Get(input)},
                              {DNNL_ARG_DIFF_DST, output_gradient_.Get(output_gradient)},
                              {DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.Begin(weights_gradient)}};
    if (bias_gradient) arguments.emplace(DNNL_ARG_DIFF_BIAS, bias_gradient);
    operation_.Run(std::move(arguments));
    weights_gradient_.Finish(weights_gradient);
  }

 private:
  CpuOperation operation_;
  ConvertedSource input_, output_gradient_;
  ConvertedDestination weights_gradient_;
};

class DataGradient {
 public:
  DataGradient(CpuDevice* device, const DataDescription& description, const memory::desc& input,
               const memory::desc& weights, const memory::desc& output)
      : operation_(device, description),
        weights_(device, weights, description.weights_desc()),
        output_gradient_(device, output, description.diff_dst_desc()),
        input_gradient_(device, description.diff_src_desc(), input) {}

  void Run(const memory& weights, const memory& output_gradient, const memory& input_gradient) {
    operation_.Run({{DNNL_ARG_WEIGHTS, weights_.Get(weights)},
                    {DNNL_ARG_DIFF_DST, output_gradient_.Get(output_gradient)},
                    {DNNL_ARG_DIFF_SRC, input_gradient_.Begin(input_gradient)}});
    input_gradient_.Finish(input_gradient);
  }

 private:
  CpuOperation operation_;
  ConvertedSource weights_, output_gradient_;
  ConvertedDestination input_gradient_;
};

class CpuConvolution : public CpuLayer {
 public:
  CpuConvolution(CpuDevice* device, const Model& model, const Layer& layer, Activation input)
      : CpuLayer(std::move(input)), weights_(*device, model.tensors()[layer.first_tensor]) {
    const memory::desc source = input_.value.get_desc();
    const Problem problem = DescribeProblem(model, layer, source.dims());
    const ForwardDescription forward = DescribeForward(*device, problem);
    const memory::desc output = forward.dst_desc();
    if (layer.spec.conv().bias()) bias_.emplace(*device, model.tensors()[layer.first_tensor + 1]);
    convolve_.emplace(device, forward, source, weights_.desc());
    weights_gradient_.emplace(device, DescribeWeightsGradient(*device, problem, forward), source,
                              weights_.desc(), output);
    if (input_.gradient) {
      data_gradient_.emplace(device, DescribeDataGradient(*device, problem, forward), source,
                             weights_.desc(), output);
    }
    output_.value = device->Allocate(output);
    output_.gradient = device->Unallocated(output);
  }

  void Forward(const ForwardPass& pass) override {
    convolve_->Run(input_.value, weights_.InParameters(pass.parameters),
                   bias_ ? bias_->InParameters(pass.parameters) : memory(), output_.value);
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    weights_gradient_->Run(input_.value, output_.gradient, weights_.InGradients(gradients),
                           bias_ ? bias_->InGradients(gradients) : memory());
    if (data_gradient_) {
      data_gradient_->Run(weights_.InParameters(parameters), output_.gradient, input_.gradient);
    }
  }

 private:
  const CpuTensor weights_;
  std::optional<CpuTensor> bias_;
  std::optional<Convolve> convolve_;
  std::optional<WeightsGradient> weights_gradient_;
  std::optional<DataGradient> data_gradient_;
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuConvolution(CpuDevice* device, const Model& model,
                                             const Layer& layer, Activation input) {
  return std::make_unique<CpuConvolution>(device, model, layer, std::move(input));
}

}  // namespace evenshard
