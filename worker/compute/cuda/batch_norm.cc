#include <utility>

#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/layers.h"

namespace evenshard {
namespace {

class CudaBatchNorm : public CudaLayer {
 public:
  CudaBatchNorm(const CudaContext& context, const Layer& layer, CudaActivation input)
      : CudaLayer(context, std::move(input)),
        shape_{context.type(), RowsOf(input_), layer.input.channels,
               layer.spec.batch_norm().epsilon()},
        momentum_(layer.spec.batch_norm().momentum()),
        tensors_(&context.model->tensors()[layer.first_tensor]),
        memory_(context.memory->Declare(3 * shape_.channels * sizeof(float))) {
    DeclareOutput(input_.shape, /*has_gradient=*/true);
    context.ReserveScratch(
        (kernels::RowSumsScratch(shape_.rows, shape_.channels, 2) + 2 * shape_.channels) *
        sizeof(float));
  }

  bool FuseRelu() override {
    relu_ = true;
    return true;
  }

  void Forward(const CudaPass& pass) override {
    if (pass.training) {
      kernels::BatchStatistics(context_.stream(), shape_, input_.value->data, Statistics(),
                               context_.scratch->floats());
    } else {
      kernels::RunningStatistics(context_.stream(), shape_, At(kMean, pass.parameters),
                                 At(kVariance, pass.parameters), Statistics());
    }
    kernels::Normalize(context_.stream(), shape_, input_.value->data, Statistics(),
                       At(kWeight, pass.parameters), At(kBias, pass.parameters), relu_,
                       output_.value->data);
  }

  void Backward(const CudaPass& pass) override {
    NormalizeGradient(
        context_.stream(), shape_, input_.value->data, Statistics(), At(kWeight, pass.parameters),
        relu_, output_.value->data, output_.gradient->data, At(kWeight, pass.gradients),
        At(kBias, pass.gradients), input_.gradient == nullptr ? nullptr : input_.gradient->data,
        context_.scratch->floats());
    kernels::PushRunningStatistics(context_.stream(), shape_, Statistics(),
                                   {.momentum = momentum_,
                                    .mean = At(kMean, pass.parameters),
                                    .variance = At(kVariance, pass.parameters),
                                    .mean_push = At(kMean, pass.gradients),
                                    .variance_push = At(kVariance, pass.gradients)});
  }

 private:
  // The order of the tensors in the model.
  enum Role { kWeight, kBias, kMean, kVariance };

  template <typename Float>
  Float* At(Role role, Float* buffer) const {
    return buffer + tensors_[role].offset;
  }

  kernels::ChannelStatistics Statistics() const {
    float* const floats = memory_->floats();
    return {floats, floats + shape_.channels, floats + 2 * shape_.channels};
  }

  const kernels::BatchNormShape shape_;
  const float momentum_;
  const Tensor* const tensors_;
  const CudaArrayPtr memory_;  // of the statistics, which Forward computes for Backward
  bool relu_ = false;
};

}  // namespace

std::unique_ptr<CudaLayer> MakeCudaBatchNorm(const CudaContext& context, const Layer& layer,
                                             CudaActivation input) {
  return std::make_unique<CudaBatchNorm>(context, layer, std::move(input));
}

}  // namespace evenshard
