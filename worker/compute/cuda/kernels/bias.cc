#include <algorithm>

#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/kernels/launch.h"
#include "worker/compute/cuda/kernels/row_sums.h"

namespace evenshard::kernels {
namespace {

template <int N, typename T>
struct AddBiasBody {
  uint32_t channels;
  const float* bias;
  bool relu;
  void* values;

  __host__ __device__ void operator()(uint32_t i) const {
    float value[N];
    Load(values, i, value, T{});
    if (bias != nullptr) {
      float added[N];
      Load(bias, i % (channels / N), added, float{});
      for (int k = 0; k < N; ++k) value[k] += added[k];
    }
    if (relu) {
      for (int k = 0; k < N; ++k) value[k] = MaxWithZero(value[k]);
    }
    Store(value, values, i, T{});
  }
};

template <int N, typename T>
struct GradientRow {
  static constexpr int kSums = 1;
  MaskedGradient<N, T> gradient;

  __host__ __device__ void operator()(uint32_t i, uint32_t pack, float (&sums)[1][N]) const {
    float value[N];
    gradient(i, value);
    for (int k = 0; k < N; ++k) sums[0][k] += value[k];
  }
};

}  // namespace

int64_t RowSumsScratch(int64_t rows, int64_t channels, int sums) {
  // The longest packs give the largest number of groups.
  const int64_t groups = RowGroups(rows, std::max<int64_t>(1, channels / kPack<__nv_bfloat16>));
  int64_t parts = groups;
  for (int64_t left = groups; left > 1; parts += left) left = FewerGroups(left);
  return parts * sums * channels;
}

void AddBias(cudaStream_t stream, ElementType type, int64_t rows, int64_t channels,
             const float* bias, bool relu, void* values) {
  ForEachPack<AddBiasBody>(stream, type, channels, rows * channels, static_cast<uint32_t>(channels),
                           bias, relu, values);
}

void AddBiasGradient(cudaStream_t stream, ElementType type, int64_t rows, int64_t channels,
                     const void* values, bool relu, void* gradient, float* bias_gradient,
                     float* scratch) {
  if (bias_gradient == nullptr) {
    if (relu) ReluGradient(stream, type, rows * channels, values, gradient, gradient);
    return;
  }
  WithPack(type, channels, [&](auto n, auto value) {
    using Row = GradientRow<n, decltype(value)>;
    SumRows<n>(stream, rows, channels, Row{{relu ? values : nullptr, gradient}}, scratch,
               bias_gradient);
  });
}

}  // namespace evenshard::kernels
