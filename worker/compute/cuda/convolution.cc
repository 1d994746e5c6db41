#include <optional>
#include <utility>

#include "worker/compute/cuda/bias.h"
#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/layers.h"

namespace evenshard {
namespace {

class CudaConvolution : public CudaLayer {
 public:
  CudaConvolution(const CudaContext& context, const Layer& layer, CudaActivation input)
      : CudaLayer(context, std::move(input)),
        spec_(layer.spec.conv()),
        tensor_(context.model->tensors()[layer.first_tensor]),
        planes_{layer.output.channels, layer.input.channels, spec_.kernel() * spec_.kernel()},
        weights_(context.memory->Declare(planes_.size() * BytesOf(context.type()))) {
    DeclareOutput(layer.output, /*has_gradient=*/true);
    bias_.emplace(context, spec_.bias() ? &tensor_ + 1 : nullptr, output_);
    context.ReserveScratch(planes_.size() * sizeof(float));
  }

  bool FuseRelu() override {
    bias_->FuseRelu();
    if (!spec_.bias()) return true;
    fused_bias_ = context_.memory->Declare(output_.shape.channels * BytesOf(context_.type()));
    return true;
  }

  void Prepare(ConvolutionPlanner* planner) override {
    ConvolutionProblem problem = {.pass = ConvolutionProblem::kForward,
                                  .type = context_.type(),
                                  .images = context_.images,
                                  .input = input_.shape,
                                  .output = output_.shape,
                                  .kernel = spec_.kernel(),
                                  .stride = spec_.stride(),
                                  .padding = spec_.padding()};
    forward_ = PlanForward(planner, problem);
    problem.pass = ConvolutionProblem::kWeightGradient;
    weight_gradient_ = planner->Plan(
        problem, {input_.value->data, context_.scratch->data, output_.gradient->data});
    if (input_.gradient == nullptr) return;
    problem.pass = ConvolutionProblem::kInputGradient;
    input_gradient_ =
        planner->Plan(problem, {input_.gradient->data, weights_->data, output_.gradient->data});
  }

  void Forward(const CudaPass& pass) override {
    kernels::ToChannelsLast(context_.stream(), planes_, ElementType::kFloat32,
                            pass.parameters + tensor_.offset, context_.type(), weights_->data);
    if (fused_bias_ != nullptr) {
      kernels::Convert(context_.stream(), output_.shape.channels,
                       pass.parameters + (&tensor_ + 1)->offset, context_.type(),
                       fused_bias_->data);
    }
    forward_->Run();
    if (fused_bias_ == nullptr) bias_->Forward(pass);
  }

  void Backward(const CudaPass& pass) override {
    bias_->Backward(pass);
    weight_gradient_->Run();
    kernels::ToPlanes(context_.stream(), planes_, context_.type(), context_.scratch->data,
                      ElementType::kFloat32, pass.gradients + tensor_.offset);
    if (input_gradient_.has_value()) input_gradient_->Run();
  }

 private:
  // Lets cuDNN add the bias and apply ReLU in the pass over the memory that it makes anyway, unless
  // separate passes are faster.
  Convolution PlanForward(ConvolutionPlanner* planner, ConvolutionProblem problem) {
    ConvolutionArguments arguments = {input_.value->data, weights_->data, output_.value->data};
    Convolution plain = planner->Plan(problem, arguments);
    if (fused_bias_ == nullptr) return plain;
    const double bias_seconds = planner->Time([&] {
      kernels::AddBias(context_.stream(), context_.type(), RowsOf(output_), output_.shape.channels,
                       /*bias=*/nullptr, /*relu=*/true, output_.value->data);
    });
    problem.pass = ConvolutionProblem::kForwardBiasRelu;
    arguments.bias = fused_bias_->data;
    std::optional<Convolution> fused = planner->TryPlan(problem, arguments);
    if (fused.has_value() && fused->seconds() <= plain.seconds() + bias_seconds) {
      return *std::move(fused);
    }
    fused_bias_ = nullptr;
    return plain;
  }

  const Conv2d& spec_;
  const Tensor& tensor_;        // the weights; the bias follows them
  const Planes planes_;         // of the weights
  const CudaArrayPtr weights_;  // channels-last; Forward converts them for Backward
  std::optional<Bias> bias_;
  CudaArrayPtr fused_bias_;  // in the form that forward_ reads; null if bias_ adds the bias
  std::optional<Convolution> forward_, weight_gradient_, input_gradient_;
};

}  // namespace

std::unique_ptr<CudaLayer> MakeCudaConvolution(const CudaContext& context, const Layer& layer,
                                               CudaActivation input) {
  return std::make_unique<CudaConvolution>(context, layer, std::move(input));
}

}  // namespace evenshard
