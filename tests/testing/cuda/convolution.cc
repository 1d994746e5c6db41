#include "tests/testing/cuda/convolution.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/wire/half_width.h"
#include "tests/testing/cuda/multiply.h"

namespace evenshard::cuda_stand_in {
namespace {

// The dimensions of a dense copy, from the slowest to the fastest.
using Order = std::array<int, 4>;
constexpr Order kChannelsLast = {0, 2, 3, 1};  // of x and y
constexpr Order kFilter = {2, 3, 1, 0};        // of w: r, s, c, k

int64_t Elements(const Tensor& tensor) {
  int64_t elements = 1;
  for (int64_t size : tensor.sizes) elements *= size;
  return elements;
}

// Calls visit(i, at) for each element in the order of a dense copy. Element i of the copy is
// data[at].
template <typename Visit>
void ForEachElement(const Tensor& tensor, const Order& order, Visit visit) {
  std::array<int64_t, 4> size, stride;
  for (int d = 0; d < 4; ++d) {
    size[d] = tensor.sizes[order[d]];
    stride[d] = tensor.strides[order[d]];
  }
  int64_t i = 0;
  for (int64_t a = 0; a < size[0]; ++a) {
    for (int64_t b = 0; b < size[1]; ++b) {
      for (int64_t c = 0; c < size[2]; ++c) {
        const int64_t at = a * stride[0] + b * stride[1] + c * stride[2];
        for (int64_t d = 0; d < size[3]; ++d) visit(i++, at + d * stride[3]);
      }
    }
  }
}

std::vector<float> Dense(const Tensor& tensor, const Order& order) {
  std::vector<float> dense(Elements(tensor));
  if (tensor.bfloat16) {
    const auto* from = static_cast<const uint16_t*>(tensor.data);
    ForEachElement(tensor, order,
                   [&](int64_t i, int64_t at) { Bfloat16().decode(from + at, 1, &dense[i]); });
  } else {
    const auto* from = static_cast<const float*>(tensor.data);
    ForEachElement(tensor, order, [&](int64_t i, int64_t at) { dense[i] = from[at]; });
  }
  return dense;
}

void Store(const std::vector<float>& dense, const Order& order, const Tensor& tensor) {
  if (tensor.bfloat16) {
    auto* to = static_cast<uint16_t*>(tensor.data);
    ForEachElement(tensor, order,
                   [&](int64_t i, int64_t at) { Bfloat16().encode(&dense[i], 1, to + at); });
  } else {
    auto* to = static_cast<float*>(tensor.data);
    ForEachElement(tensor, order, [&](int64_t i, int64_t at) { to[at] = dense[i]; });
  }
}

}  // namespace

size_t Tensor::Bytes() const {
  int64_t elements = 1;
  for (int d = 0; d < 4; ++d) elements += (sizes[d] - 1) * strides[d];
  return elements * ElementBytes();
}

std::vector<Tensor*> Convolution::tensors() {
  std::vector<Tensor*> all = {&x, &w, &y};
  if (then.has_value()) all.push_back(&then->bias);
  return all;
}

Tensor& Convolution::output() {
  return kind == ConvolutionKind::kForward ? y : kind == ConvolutionKind::kBackwardData ? x : w;
}

// Works on dense float32 copies. For each row of y and each position (r, s) in the filter, adds the
// product of two of these matrices to the third: a row of pixels of x, a row of y, and the [k, c]
// of w at that position. Channels are adjacent in each.
void Convolution::Compute() const {
  const auto operand = [this](const Tensor& tensor, const Order& order, ConvolutionKind written) {
    if (kind != written) return Dense(tensor, order);
    std::vector<float> sums(Elements(tensor), 0.0f);
    if (beta != 0) {
      sums = Dense(tensor, order);
      for (float& sum : sums) sum *= beta;
    }
    return sums;
  };
  std::vector<float> xs = operand(x, kChannelsLast, ConvolutionKind::kBackwardData);
  std::vector<float> ws = operand(w, kFilter, ConvolutionKind::kBackwardFilter);
  std::vector<float> ys = operand(y, kChannelsLast, ConvolutionKind::kForward);
  const auto [images, channels, height, width] = x.sizes;
  const auto [filters, w_channels, w_height, w_width] = w.sizes;
  const auto [y_images, y_channels, y_height, y_width] = y.sizes;

  for (int64_t r = 0; r < w_height; ++r) {
    for (int64_t s = 0; s < w_width; ++s) {
      float* weights = ws.data() + (r * w_width + s) * channels * filters;
      // The row's pixels from `begin` up to `end`, exclusive, meet a pixel of x.
      const int64_t shift = s * dilation[1] - padding[1];
      const int64_t begin = std::max<int64_t>(0, (-shift + stride[1] - 1) / stride[1]);
      const int64_t end =
          shift < width ? std::min(y_width, (width - 1 - shift) / stride[1] + 1) : 0;
      const int64_t pixels = end - begin;
      if (pixels <= 0) continue;
      for (int64_t row = 0; row < images * y_height; ++row) {
        const int64_t h = row % y_height * stride[0] + r * dilation[0] - padding[0];
        if (h < 0 || h >= height) continue;
        float* y_row = ys.data() + (row * y_width + begin) * filters;
        float* x_row =
            xs.data() +
            ((row / y_height * height + h) * width + begin * stride[1] + shift) * channels;
        const int64_t step = stride[1] * channels;  // from one pixel to the next
        switch (kind) {
          case ConvolutionKind::kForward:
            MultiplyAdd(filters, pixels, channels, alpha, {weights, 1, filters}, {x_row, 1, step},
                        y_row, filters);
            break;
          case ConvolutionKind::kBackwardData:
            MultiplyAdd(channels, pixels, filters, alpha, {weights, filters, 1},
                        {y_row, 1, filters}, x_row, step);
            break;
          case ConvolutionKind::kBackwardFilter:
            MultiplyAdd(filters, channels, pixels, alpha, {y_row, 1, filters}, {x_row, step, 1},
                        weights, filters);
            break;
        }
      }
    }
  }

  if (then.has_value()) {
    const std::vector<float> bias = Dense(then->bias, kChannelsLast);
    for (size_t i = 0; i < ys.size(); ++i) {
      ys[i] += bias[i % bias.size()];
      if (ys[i] < 0 || (std::isnan(ys[i]) && !then->keeps_nan)) ys[i] = 0;
    }
  }
  switch (kind) {
    case ConvolutionKind::kForward:
      return Store(ys, kChannelsLast, y);
    case ConvolutionKind::kBackwardData:
      return Store(xs, kChannelsLast, x);
    case ConvolutionKind::kBackwardFilter:
      return Store(ws, kFilter, w);
  }
}

}  // namespace evenshard::cuda_stand_in
