#include <string>
#include <utility>

#include "common/base/random.h"
#include "worker/compute/cpu/layers.h"
#include "worker/compute/dropout_stream.h"

namespace evenshard {
namespace {

using dnnl::memory;

class CpuDropout : public CpuLayer {
 public:
  CpuDropout(CpuDevice* device, const Layer& layer, uint64_t seed, int rank, Activation input)
      : CpuLayer(std::move(input)),
        probability_(layer.spec.dropout().p()),
        elements_(input_.value.get_desc().dims()[0] * layer.input.size()),
        seed_(seed),
        layer_(layer.name),
        rank_(rank),
        plain_mask_(device->Allocate(PlainFormat(input_.value.get_desc().dims()))),
        converted_mask_(device, plain_mask_.get_desc(), input_.value.get_desc()),
        multiply_(device, device->Describe<dnnl::binary>(
                              {dnnl::algorithm::binary_mul, input_.value.get_desc(),
                               input_.value.get_desc(), input_.value.get_desc()})) {
    output_ = input_;
  }

  void Forward(const ForwardPass& pass) override {
    if (!pass.training) return;
    const CounterRandom random(seed_, DropoutStream(layer_, rank_, pass.iteration));
    const float scale = 1 / (1 - probability_);
    const absl::Span<float> mask(Floats(plain_mask_), elements_);
    random.FillUniform(0, mask);
    for (float& value : mask) value = value < probability_ ? 0 : scale;
    mask_ = converted_mask_.Get(plain_mask_);
    Multiply(output_.value);
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    Multiply(input_.gradient);
  }

 private:
  void Multiply(const memory& values) const {
    multiply_.Run({{DNNL_ARG_SRC_0, values}, {DNNL_ARG_SRC_1, mask_}, {DNNL_ARG_DST, values}});
  }

  const float probability_;
  const int64_t elements_;  // in a full batch
  const uint64_t seed_;
  const std::string layer_;
  const int rank_;
  const memory plain_mask_;
  const ConvertedSource converted_mask_;
  const CpuOperation multiply_;
  memory mask_;  // 0 or the scale, in the input's format; Forward writes it for Backward
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuDropout(CpuDevice* device, const Layer& layer, uint64_t seed,
                                         int rank, Activation input) {
  return std::make_unique<CpuDropout>(device, layer, seed, rank, std::move(input));
}

}  // namespace evenshard
