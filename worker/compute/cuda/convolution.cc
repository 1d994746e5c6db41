#include "worker/compute/cuda/convolution.h"

#include <optional>
#include <utility>

#include "worker/compute/cuda/bias.h"
#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/kernels.h"

namespace ps {
namespace {

class CudaConvolution : public CudaLayer {
 public:
  CudaConvolution(const CudaContext& context, const Layer& layer, CudaActivation input)
      : CudaLayer(context, std::move(input)),
        spec_(layer.spec.conv()),
        tensor_(context.model->tensors()[layer.first_tensor]),
        planes_{layer.output.channels, layer.input.channels, spec_.kernel() * spec_.kernel()},
        weights_(context.memory->Declare(planes_.size() * BytesOf(context.type()))) {
    output_ = {layer.output, context.DeclareValues(layer.output),
               context.DeclareGradients(layer.output)};
    bias_.emplace(context, spec_.bias() ? &tensor_ + 1 : nullptr, output_);
    context.ReserveScratch(planes_.size() * sizeof(float));
  }

  bool FuseRelu() override {
    bias_->FuseRelu();
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
    forward_ = planner->Plan(problem, {input_.value->data, weights_->data, output_.value->data});

    problem.pass = ConvolutionProblem::kWeightGradient;
    const ConvolutionArguments arguments = {input_.value->data, context_.scratch->data,
                                            output_.gradient->data};
    weight_gradient_ = planner->TryPlan(problem, arguments);
    if (context_.type() != ElementType::kFloat32) {
      // Sums of products of 16 bits may leave an engine in 32 bits or rounded once. The former are
      // worth a little time.
      problem.weight_type = context_.type();
      std::optional<Convolution> rounded = planner->TryPlan(problem, arguments);
      if (rounded.has_value() && (!weight_gradient_.has_value() ||
                                  rounded->seconds() < 0.9 * weight_gradient_->seconds())) {
        weight_gradient_ = std::move(rounded);
        weight_gradient_type_ = problem.weight_type;
      }
    }
    if (!weight_gradient_.has_value()) planner->Refuse(problem);

    if (input_.gradient == nullptr) return;
    problem.pass = ConvolutionProblem::kInputGradient;
    problem.weight_type = ElementType::kFloat32;
    input_gradient_ =
        planner->Plan(problem, {input_.gradient->data, weights_->data, output_.gradient->data});
  }

  void Forward(const CudaPass& pass) override {
    kernels::ToChannelsLast(context_.stream(), planes_, ElementType::kFloat32,
                            pass.parameters + tensor_.offset, context_.type(), weights_->data);
    forward_->Run();
    bias_->Forward(pass);
  }

  void Backward(const CudaPass& pass) override {
    bias_->Backward(pass);
    weight_gradient_->Run();
    kernels::ToPlanes(context_.stream(), planes_, weight_gradient_type_, context_.scratch->data,
                      ElementType::kFloat32, pass.gradients + tensor_.offset);
    if (input_gradient_.has_value()) input_gradient_->Run();
  }

 private:
  const Conv2d& spec_;
  const Tensor& tensor_;        // the weights; the bias follows them
  const Planes planes_;         // of the weights
  const CudaArrayPtr weights_;  // channels-last, from Forward for Backward
  std::optional<Bias> bias_;
  std::optional<Convolution> forward_, weight_gradient_, input_gradient_;
  ElementType weight_gradient_type_ = ElementType::kFloat32;
};

}  // namespace

std::unique_ptr<CudaLayer> MakeCudaConvolution(const CudaContext& context, const Layer& layer,
                                               CudaActivation input) {
  return std::make_unique<CudaConvolution>(context, layer, std::move(input));
}

}  // namespace ps
