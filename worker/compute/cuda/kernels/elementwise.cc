#include "common/base/philox.h"
#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/kernels/launch.h"

namespace evenshard::kernels {
namespace {

template <int N, typename T>
struct ReluGradientBody {
  const void* output;
  const void* from;
  void* to;

  __host__ __device__ void operator()(uint32_t i) const {
    float value[N];
    float gradient[N];
    Load(output, i, value, T{});
    Load(from, i, gradient, T{});
    for (int k = 0; k < N; ++k) gradient[k] = value[k] > 0 ? gradient[k] : 0;
    Store(gradient, to, i, T{});
  }
};

template <int N, typename T>
struct AddBody {
  const void* a;
  const void* b;
  bool relu;
  void* sum;

  __host__ __device__ void operator()(uint32_t i) const {
    float value[N];
    float added[N];
    Load(a, i, value, T{});
    Load(b, i, added, T{});
    for (int k = 0; k < N; ++k) {
      value[k] += added[k];
      if (relu) value[k] = MaxWithZero(value[k]);
    }
    Store(value, sum, i, T{});
  }
};

template <typename T>
struct DropoutBody {
  uint32_t channels, pixels;
  float probability;
  uint64_t seed, stream_id;
  void* values;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t channel = i % channels;
    const uint32_t place = i / channels;
    const uint64_t index =
        (static_cast<uint64_t>(place / pixels) * channels + channel) * pixels + place % pixels;
    const float uniform = PhiloxUniform(PhiloxBlock(seed, stream_id, index / 4)[index % 4]);
    const float factor = uniform < probability ? 0 : 1 / (1 - probability);
    T* const value = static_cast<T*>(values) + i;
    *value = FromFloat<T>(ToFloat(*value) * factor);
  }
};

}  // namespace

void ReluGradient(cudaStream_t stream, ElementType type, int64_t size, const void* output,
                  const void* from, void* to) {
  ForEachPack<ReluGradientBody>(stream, type, size, size, output, from, to);
}

void AddRelu(cudaStream_t stream, ElementType type, int64_t size, const void* a, const void* b,
             void* output) {
  ForEachPack<AddBody>(stream, type, size, size, a, b, /*relu=*/true, output);
}

void Add(cudaStream_t stream, ElementType type, int64_t size, const void* a, const void* b,
         void* sum) {
  ForEachPack<AddBody>(stream, type, size, size, a, b, /*relu=*/false, sum);
}

void Dropout(cudaStream_t stream, ElementType type, const Planes& planes, float probability,
             uint64_t seed, uint64_t stream_id, void* values) {
  ForEachElement<DropoutBody>(stream, type, planes.size(), static_cast<uint32_t>(planes.channels),
                              static_cast<uint32_t>(planes.pixels), probability, seed, stream_id,
                              values);
}

}  // namespace evenshard::kernels
