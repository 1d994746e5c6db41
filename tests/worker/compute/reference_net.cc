#include "tests/worker/compute/reference_net.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/random.h"
#include "worker/compute/dropout_stream.h"

namespace evenshard {
namespace {

using Values = std::vector<double>;  // [images, channels, height, width]

struct Reference {
  const Model& model;
  const Values& parameters;
  const ReferencePass& pass;
  int64_t images;

  double Element(const Tensor& tensor, int64_t i) const { return parameters[tensor.offset + i]; }
  const Tensor& TensorOf(const Layer& layer, int i) const {
    return model.tensors()[layer.first_tensor + i];
  }

  Values Convolve(const Layer& layer, const Values& input) const {
    const Conv2d& conv = layer.spec.conv();
    const Shape3 &in = layer.input, &out = layer.output;
    Values output;
    for (int64_t n = 0; n < images; ++n) {
      for (int64_t o = 0; o < out.channels; ++o) {
        for (int64_t y = 0; y < out.height; ++y) {
          for (int64_t x = 0; x < out.width; ++x) {
            double sum = conv.bias() ? Element(TensorOf(layer, 1), o) : 0;
            for (int64_t i = 0; i < in.channels; ++i) {
              for (int64_t ky = 0; ky < conv.kernel(); ++ky) {
                for (int64_t kx = 0; kx < conv.kernel(); ++kx) {
                  const int64_t row = y * conv.stride() - conv.padding() + ky;
                  const int64_t column = x * conv.stride() - conv.padding() + kx;
                  if (row < 0 || row >= in.height || column < 0 || column >= in.width) continue;
                  const int64_t weight =
                      ((o * in.channels + i) * conv.kernel() + ky) * conv.kernel() + kx;
                  sum += Element(TensorOf(layer, 0), weight) *
                         input[((n * in.channels + i) * in.height + row) * in.width + column];
                }
              }
            }
            output.push_back(sum);
          }
        }
      }
    }
    return output;
  }

  Values Linear(const Layer& layer, const Values& input) const {
    const int64_t in = layer.input.size();
    Values output;
    for (int64_t n = 0; n < images; ++n) {
      for (int64_t o = 0; o < layer.output.size(); ++o) {
        double sum = layer.spec.linear().bias() ? Element(TensorOf(layer, 1), o) : 0;
        for (int64_t i = 0; i < in; ++i) {
          sum += Element(TensorOf(layer, 0), o * in + i) * input[n * in + i];
        }
        output.push_back(sum);
      }
    }
    return output;
  }

  Values MaxPool(const Layer& layer, const Values& input) const {
    const MaxPool2d& pool = layer.spec.max_pool();
    const int64_t stride = pool.has_stride() ? pool.stride() : pool.kernel();
    const Shape3 &in = layer.input, &out = layer.output;
    Values output;
    for (int64_t plane = 0; plane < images * in.channels; ++plane) {
      for (int64_t y = 0; y < out.height; ++y) {
        for (int64_t x = 0; x < out.width; ++x) {
          double largest = -std::numeric_limits<double>::infinity();
          for (int64_t ky = 0; ky < pool.kernel(); ++ky) {
            for (int64_t kx = 0; kx < pool.kernel(); ++kx) {
              const int64_t row = y * stride - pool.padding() + ky;
              const int64_t column = x * stride - pool.padding() + kx;
              if (row < 0 || row >= in.height || column < 0 || column >= in.width) continue;
              largest = std::max(largest, input[(plane * in.height + row) * in.width + column]);
            }
          }
          output.push_back(largest);
        }
      }
    }
    return output;
  }

  Values AveragePool(const Layer& layer, const Values& input) const {
    const int64_t pixels = layer.input.height * layer.input.width;
    Values output(images * layer.input.channels);
    for (size_t i = 0; i < input.size(); ++i) output[i / pixels] += input[i] / pixels;
    return output;
  }

  Values BatchNorm(const Layer& layer, Values values) const {
    const int64_t channels = layer.input.channels;
    const int64_t pixels = layer.input.height * layer.input.width;
    const auto channel = [&](size_t i) { return static_cast<int64_t>(i) / pixels % channels; };
    Values mean(channels), variance(channels);
    for (int64_t c = 0; c < channels && !pass.training; ++c) {
      mean[c] = Element(TensorOf(layer, 2), c);
      variance[c] = Element(TensorOf(layer, 3), c);
    }
    const double rows = images * pixels;
    for (size_t i = 0; i < values.size() && pass.training; ++i) {
      mean[channel(i)] += values[i] / rows;
    }
    for (size_t i = 0; i < values.size() && pass.training; ++i) {
      variance[channel(i)] += std::pow(values[i] - mean[channel(i)], 2) / rows;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t c = channel(i);
      values[i] = (values[i] - mean[c]) /
                      std::sqrt(variance[c] + layer.spec.batch_norm().epsilon()) *
                      Element(TensorOf(layer, 0), c) +
                  Element(TensorOf(layer, 1), c);
    }
    return values;
  }

  Values Dropout(const Layer& layer, Values values) const {
    if (!pass.training) return values;
    const float probability = layer.spec.dropout().p();
    const CounterRandom random(pass.seed, DropoutStream(layer.name, pass.rank, pass.iteration));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] *= random.Uniform(i) < probability ? 0 : 1 / (1 - double{probability});
    }
    return values;
  }

  static Values Relu(Values values) {
    for (double& value : values) value = std::max(value, 0.0);
    return values;
  }

  Values Run(const Layer& layer, const std::vector<const Values*>& inputs) const {
    switch (layer.spec.kind_case()) {
      case LayerSpec::kConv:
        return Convolve(layer, *inputs[0]);
      case LayerSpec::kLinear:
        return Linear(layer, *inputs[0]);
      case LayerSpec::kMaxPool:
        return MaxPool(layer, *inputs[0]);
      case LayerSpec::kGlobalAvgPool:
        return AveragePool(layer, *inputs[0]);
      case LayerSpec::kBatchNorm:
        return BatchNorm(layer, *inputs[0]);
      case LayerSpec::kDropout:
        return Dropout(layer, *inputs[0]);
      case LayerSpec::kRelu:
        return Relu(*inputs[0]);
      default:
        break;
    }
    Values sum = *inputs[0];  // the end of a residual block
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*inputs[1])[i];
    return Relu(std::move(sum));
  }
};

}  // namespace

double ReferenceLoss(const TestNet& net, const std::vector<double>& parameters,
                     const ReferencePass& pass) {
  const int64_t images = static_cast<int64_t>(net.labels.size());
  const Reference reference{net.model, parameters, pass, images};
  std::vector<Values> outputs = {Values(net.images.begin(), net.images.end())};
  for (const Layer& layer : net.model.layers()) {
    std::vector<const Values*> inputs;
    for (const int input : layer.inputs) inputs.push_back(&outputs[input + 1]);
    outputs.push_back(reference.Run(layer, inputs));
  }
  const Values& scores = outputs.back();
  const int64_t classes = net.model.classes();
  double loss = 0;
  for (int64_t n = 0; n < images; ++n) {
    const auto row = scores.begin() + n * classes;
    const double largest = *std::max_element(row, row + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - largest);
    loss += largest + std::log(sum) - row[net.labels[n]];
  }
  return loss / images;
}

std::vector<double> ReferenceGradient(const TestNet& net, const Tensor& tensor,
                                      const ReferencePass& pass) {
  constexpr double kStep = 1e-7;
  std::vector<double> parameters(net.parameters.begin(), net.parameters.end());
  std::vector<double> gradient;
  for (int64_t i = 0; i < tensor.size; ++i) {
    double& parameter = parameters[tensor.offset + i];
    const double before = parameter;
    parameter = before + kStep;
    const double above = ReferenceLoss(net, parameters, pass);
    parameter = before - kStep;
    const double below = ReferenceLoss(net, parameters, pass);
    parameter = before;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

}  // namespace evenshard
