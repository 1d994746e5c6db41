#include "worker/compute/cuda/bias.h"

namespace evenshard {

Bias::Bias(const CudaContext& context, const Tensor* tensor, const CudaActivation& output)
    : context_(context),
      output_(output),
      rows_(context.images * output.shape.height * output.shape.width),
      tensor_(tensor) {
  if (tensor_ == nullptr) return;
  context.ReserveScratch(kernels::RowSumsScratch(rows_, output.shape.channels, 1) * sizeof(float));
}

void Bias::Forward(const CudaPass& pass) const {
  if (tensor_ == nullptr && !relu_) return;
  kernels::AddBias(context_.stream(), context_.type(), rows_, output_.shape.channels,
                   tensor_ == nullptr ? nullptr : pass.parameters + tensor_->offset, relu_,
                   output_.value->data);
}

void Bias::Backward(const CudaPass& pass) const {
  kernels::AddBiasGradient(context_.stream(), context_.type(), rows_, output_.shape.channels,
                           output_.value->data, relu_, output_.gradient->data,
                           tensor_ == nullptr ? nullptr : pass.gradients + tensor_->offset,
                           context_.scratch->floats());
}

}  // namespace evenshard
