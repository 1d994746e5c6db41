#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/kernels/launch.h"

namespace ps::kernels {
namespace {

template <typename From, typename To>
struct ToChannelsLastBody {
  uint32_t channels, pixels;
  const From* from;
  To* to;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t channel = i % channels;
    const uint32_t place = i / channels;  // image x pixels + pixel
    const uint32_t image = place / pixels;
    const uint32_t pixel = place % pixels;
    to[i] = FromFloat<To>(ToFloat(from[(image * channels + channel) * pixels + pixel]));
  }
};

template <typename From, typename To>
struct ToPlanesBody {
  uint32_t channels, pixels;
  const From* from;
  To* to;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t pixel = i % pixels;
    const uint32_t place = i / pixels;  // image x channels + channel
    const uint32_t image = place / channels;
    const uint32_t channel = place % channels;
    to[i] = FromFloat<To>(ToFloat(from[(image * pixels + pixel) * channels + channel]));
  }
};

template <template <typename, typename> class Body>
void Transpose(cudaStream_t stream, const Planes& planes, ElementType from_type, const void* from,
               ElementType to_type, void* to) {
  WithType(from_type, [&](auto from_value) {
    WithType(to_type, [&](auto to_value) {
      using From = decltype(from_value);
      using To = decltype(to_value);
      ForEach(stream, planes.size(),
              Body<From, To>{static_cast<uint32_t>(planes.channels),
                             static_cast<uint32_t>(planes.pixels), static_cast<const From*>(from),
                             static_cast<To*>(to)});
    });
  });
}

template <int N, typename T>
struct ConvertBody {
  const float* from;
  void* to;

  __host__ __device__ void operator()(uint32_t i) const {
    float values[N];
    Load(from, i, values, float{});
    Store(values, to, i, T{});
  }
};

}  // namespace

void ToChannelsLast(cudaStream_t stream, const Planes& planes, ElementType from_type,
                    const void* from, ElementType to_type, void* to) {
  Transpose<ToChannelsLastBody>(stream, planes, from_type, from, to_type, to);
}

void ToPlanes(cudaStream_t stream, const Planes& planes, ElementType from_type, const void* from,
              ElementType to_type, void* to) {
  Transpose<ToPlanesBody>(stream, planes, from_type, from, to_type, to);
}

void Convert(cudaStream_t stream, int64_t size, const float* from, ElementType type, void* to) {
  ForEachPack<ConvertBody>(stream, type, size, size, from, to);
}

}  // namespace ps::kernels
