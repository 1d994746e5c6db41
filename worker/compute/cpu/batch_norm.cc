#include <optional>
#include <utility>

#include "worker/compute/cpu/layers.h"
#include "worker/compute/cpu/tensor.h"

namespace evenshard {
namespace {

using dnnl::memory;
using Flags = dnnl::normalization_flags;

const Flags kScaleAndShift = Flags::use_scale | Flags::use_shift;

class CpuBatchNorm : public CpuLayer {
 public:
  CpuBatchNorm(CpuDevice* device, const Model& model, const Layer& layer, Activation input)
      : CpuLayer(std::move(input)),
        device_(device),
        channels_(layer.input.channels),
        momentum_(layer.spec.batch_norm().momentum()),
        weight_(*device, model.tensors()[layer.first_tensor]),
        bias_(*device, model.tensors()[layer.first_tensor + 1]),
        running_mean_(*device, model.tensors()[layer.first_tensor + 2]),
        running_variance_(*device, model.tensors()[layer.first_tensor + 3]) {
    const memory::desc data = input_.value.get_desc();
    const double values = data.dims()[0] * layer.input.height * layer.input.width;
    unbiased_ = values / (values - 1);
    const float epsilon = layer.spec.batch_norm().epsilon();
    const auto training = device->Describe<dnnl::batch_normalization_forward>(
        {dnnl::prop_kind::forward_training, data, epsilon, kScaleAndShift});
    train_.emplace(device, training);
    evaluate_.emplace(device, device->Describe<dnnl::batch_normalization_forward>(
                                  {dnnl::prop_kind::forward_inference, data, epsilon,
                                   kScaleAndShift | Flags::use_global_stats}));
    backward_.emplace(
        device, device->Describe<dnnl::batch_normalization_backward>(
                    {dnnl::prop_kind::backward, data, data, epsilon, kScaleAndShift}, training));
    mean_ = device->Allocate(training.mean_desc());
    variance_ = device->Allocate(training.variance_desc());
    output_.value = device->Allocate(data);
    output_.gradient = device->Unallocated(data);
    input_gradient_ = input_.gradient ? input_.gradient : device->Allocate(data);
  }

  void Forward(const ForwardPass& pass) override {
    (pass.training ? *train_ : *evaluate_)
        .Run({{DNNL_ARG_SRC, input_.value},
              {DNNL_ARG_MEAN, pass.training ? mean_ : running_mean_.InParameters(pass.parameters)},
              {DNNL_ARG_VARIANCE,
               pass.training ? variance_ : running_variance_.InParameters(pass.parameters)},
              {DNNL_ARG_SCALE, weight_.InParameters(pass.parameters)},
              {DNNL_ARG_SHIFT, bias_.InParameters(pass.parameters)},
              {DNNL_ARG_DST, output_.value}});
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    backward_->Run({{DNNL_ARG_SRC, input_.value},
                    {DNNL_ARG_MEAN, mean_},
                    {DNNL_ARG_VARIANCE, variance_},
                    {DNNL_ARG_SCALE, weight_.InParameters(parameters)},
                    {DNNL_ARG_SHIFT, bias_.InParameters(parameters)},
                    {DNNL_ARG_DIFF_DST, output_.gradient},
                    {DNNL_ARG_DIFF_SRC, input_gradient_},
                    {DNNL_ARG_DIFF_SCALE, weight_.InGradients(gradients)},
                    {DNNL_ARG_DIFF_SHIFT, bias_.InGradients(gradients)}});
    device_->stream().wait();
    PushStatistic(running_mean_, parameters, mean_, 1, gradients);
    PushStatistic(running_variance_, parameters, variance_, unbiased_, gradients);
  }

 private:
  // Writes what a shard must subtract to move a running statistic towards `factor` times the
  // batch's.
  void PushStatistic(const CpuTensor& running, absl::Span<const float> parameters,
                     const memory& of_batch, double factor, absl::Span<float> gradients) const {
    const float* const now = Floats(running.InParameters(parameters));
    const float* const batch = Floats(of_batch);
    float* const push = Floats(running.InGradients(gradients));
    for (int64_t i = 0; i < channels_; ++i) {
      push[i] = static_cast<float>(momentum_ * (now[i] - factor * batch[i]));
    }
  }

  CpuDevice* const device_;
  const int64_t channels_;
  const float momentum_;
  // The unbiased estimate of the variance, divided by the variance of the batch.
  double unbiased_;
  const CpuTensor weight_, bias_, running_mean_, running_variance_;
  std::optional<CpuOperation> train_, evaluate_, backward_;
  memory mean_, variance_;  // of the batch; Forward writes them for Backward
  memory input_gradient_;   // exists even if it is not needed, since oneDNN always writes it
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuBatchNorm(CpuDevice* device, const Model& model,
                                           const Layer& layer, Activation input) {
  return std::make_unique<CpuBatchNorm>(device, model, layer, std::move(input));
}

}  // namespace evenshard
