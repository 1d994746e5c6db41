#include <math.h>

#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/kernels/launch.h"
#include "worker/compute/cuda/kernels/row_sums.h"

namespace evenshard::kernels {
namespace {

template <int N, typename T>
struct ValueRow {
  static constexpr int kSums = 1;
  const void* input;

  __host__ __device__ void operator()(uint32_t i, uint32_t pack, float (&sums)[1][N]) const {
    float value[N];
    Load(input, i, value, T{});
    for (int k = 0; k < N; ++k) sums[0][k] += value[k];
  }
};

// Sums the squared distances from the mean.
template <int N, typename T>
struct SquareRow {
  static constexpr int kSums = 1;
  const void* input;
  const float* mean;

  __host__ __device__ void operator()(uint32_t i, uint32_t pack, float (&sums)[1][N]) const {
    float value[N];
    float center[N];
    Load(mean, pack, center, float{});
    Load(input, i, value, T{});
    for (int k = 0; k < N; ++k) {
      const float distance = value[k] - center[k];
      sums[0][k] += distance * distance;
    }
  }
};

struct MeanBody {
  float rows;
  const float* sums;
  float* mean;

  __host__ __device__ void operator()(uint32_t i) const { mean[i] = sums[i] / rows; }
};

// Computes variance = sums / rows and scale = 1 / sqrt(variance + epsilon). Unless `other_mean` is
// null, copies it to the mean.
struct ScaleBody {
  float rows, epsilon;
  const float* sums;
  const float* other_mean;
  ChannelStatistics statistics;

  __host__ __device__ void operator()(uint32_t i) const {
    if (other_mean != nullptr) statistics.mean[i] = other_mean[i];
    statistics.variance[i] = sums[i] / rows;
    statistics.scale[i] = 1 / sqrtf(statistics.variance[i] + epsilon);
  }
};

template <int N, typename T>
struct NormalizeBody {
  uint32_t channels;
  const void* input;
  ChannelStatistics statistics;
  const float* weight;
  const float* bias;
  bool relu;
  void* output;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t pack = i % (channels / N);
    float value[N], mean[N], scale[N], factor[N], shift[N];
    Load(input, i, value, T{});
    Load(statistics.mean, pack, mean, float{});
    Load(statistics.scale, pack, scale, float{});
    Load(weight, pack, factor, float{});
    Load(bias, pack, shift, float{});
    for (int k = 0; k < N; ++k) {
      value[k] = (value[k] - mean[k]) * scale[k] * factor[k] + shift[k];
      if (relu) value[k] = MaxWithZero(value[k]);
    }
    Store(value, output, i, T{});
  }
};

// Sums the gradient, and the gradient times the normalised input.
template <int N, typename T>
struct NormalizeGradientRow {
  static constexpr int kSums = 2;
  MaskedGradient<N, T> gradient;
  const void* input;
  ChannelStatistics statistics;

  __host__ __device__ void operator()(uint32_t i, uint32_t pack, float (&sums)[2][N]) const {
    float by_output[N], value[N], mean[N], scale[N];
    Load(statistics.mean, pack, mean, float{});
    Load(statistics.scale, pack, scale, float{});
    Load(input, i, value, T{});
    gradient(i, by_output);
    for (int k = 0; k < N; ++k) {
      sums[0][k] += by_output[k];
      sums[1][k] += by_output[k] * (value[k] - mean[k]) * scale[k];
    }
  }
};

template <int N, typename T>
struct NormalizeGradientBody {
  uint32_t channels;
  float rows;
  const void* input;
  ChannelStatistics statistics;
  const float* weight;
  const float* sums;  // written by NormalizeGradientRow
  const void* output_gradient;
  void* input_gradient;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t pack = i % (channels / N);
    float by_output[N], value[N], mean[N], scale[N], factor[N], sum[N], product_sum[N];
    Load(output_gradient, i, by_output, T{});
    Load(input, i, value, T{});
    Load(statistics.mean, pack, mean, float{});
    Load(statistics.scale, pack, scale, float{});
    Load(weight, pack, factor, float{});
    Load(sums, pack, sum, float{});
    Load(sums + channels, pack, product_sum, float{});
    for (int k = 0; k < N; ++k) {
      const float normalized = (value[k] - mean[k]) * scale[k];
      value[k] =
          factor[k] * scale[k] * (by_output[k] - (sum[k] + normalized * product_sum[k]) / rows);
    }
    Store(value, input_gradient, i, T{});
  }
};

struct NormalizeTensorsBody {
  uint32_t channels;
  const float* sums;  // written by NormalizeGradientRow
  float* weight_gradient;
  float* bias_gradient;

  __host__ __device__ void operator()(uint32_t i) const {
    bias_gradient[i] = sums[i];
    weight_gradient[i] = sums[channels + i];
  }
};

struct RunningPushBody {
  float unbiased;
  ChannelStatistics statistics;
  RunningPush push;

  __host__ __device__ void operator()(uint32_t i) const {
    push.mean_push[i] = push.momentum * (push.mean[i] - statistics.mean[i]);
    push.variance_push[i] = push.momentum * (push.variance[i] - unbiased * statistics.variance[i]);
  }
};

}  // namespace

void BatchStatistics(cudaStream_t stream, const BatchNormShape& shape, const void* input,
                     const ChannelStatistics& statistics, float* scratch) {
  const auto& [type, rows, channels, epsilon] = shape;
  const float divisor = static_cast<float>(rows);
  float* const sums = scratch + RowSumsScratch(rows, channels, 1);
  WithPack(type, channels, [&](auto n, auto value) {
    using T = decltype(value);
    SumRows<n>(stream, rows, channels, ValueRow<n, T>{input}, scratch, sums);
    ForEach(stream, channels, MeanBody{divisor, sums, statistics.mean});
    SumRows<n>(stream, rows, channels, SquareRow<n, T>{input, statistics.mean}, scratch, sums);
  });
  ForEach(stream, channels, ScaleBody{divisor, epsilon, sums, nullptr, statistics});
}

void RunningStatistics(cudaStream_t stream, const BatchNormShape& shape, const float* mean,
                       const float* variance, const ChannelStatistics& statistics) {
  ForEach(stream, shape.channels, ScaleBody{1, shape.epsilon, variance, mean, statistics});
}

void Normalize(cudaStream_t stream, const BatchNormShape& shape, const void* input,
               const ChannelStatistics& statistics, const float* weight, const float* bias,
               bool relu, void* output) {
  ForEachPack<NormalizeBody>(stream, shape.type, shape.channels, shape.rows * shape.channels,
                             static_cast<uint32_t>(shape.channels), input, statistics, weight, bias,
                             relu, output);
}

void NormalizeGradient(cudaStream_t stream, const BatchNormShape& shape, const void* input,
                       const ChannelStatistics& statistics, const float* weight, bool relu,
                       const void* output, void* output_gradient, float* weight_gradient,
                       float* bias_gradient, void* input_gradient, float* scratch) {
  const auto& [type, rows, channels, epsilon] = shape;
  const uint32_t width = static_cast<uint32_t>(channels);
  float* const sums = scratch + RowSumsScratch(rows, channels, 2);
  WithPack(type, channels, [&](auto n, auto value) {
    using Row = NormalizeGradientRow<n, decltype(value)>;
    SumRows<n>(stream, rows, channels,
               Row{{relu ? output : nullptr, output_gradient}, input, statistics}, scratch, sums);
  });
  ForEach(stream, channels, NormalizeTensorsBody{width, sums, weight_gradient, bias_gradient});
  if (input_gradient == nullptr) return;
  ForEachPack<NormalizeGradientBody>(stream, type, channels, rows * channels, width,
                                     static_cast<float>(rows), input, statistics, weight,
                                     static_cast<const float*>(sums),
                                     static_cast<const void*>(output_gradient), input_gradient);
}

void PushRunningStatistics(cudaStream_t stream, const BatchNormShape& shape,
                           const ChannelStatistics& statistics, const RunningPush& push) {
  const double rows = shape.rows;
  const float unbiased = static_cast<float>(rows / (rows - 1));
  ForEach(stream, shape.channels, RunningPushBody{unbiased, statistics, push});
}

}  // namespace evenshard::kernels
