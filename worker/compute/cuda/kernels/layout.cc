#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/kernels/launch.h"

namespace evenshard::kernels {
namespace {

// Transposes [images, rows, columns] to [images, columns, rows].
template <typename From, typename To>
struct TransposeBody {
  uint32_t rows, columns;
  const From* from;
  To* to;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t row = i % rows;
    const uint32_t place = i / rows;  // image x columns + column
    const uint32_t image = place / columns;
    const uint32_t column = place % columns;
    to[i] = FromFloat<To>(ToFloat(from[(image * rows + row) * columns + column]));
  }
};

void Transpose(cudaStream_t stream, int64_t images, int64_t rows, int64_t columns,
               ElementType from_type, const void* from, ElementType to_type, void* to) {
  WithType(from_type, [&](auto from_value) {
    WithType(to_type, [&](auto to_value) {
      using From = decltype(from_value);
      using To = decltype(to_value);
      ForEach(stream, images * rows * columns,
              TransposeBody<From, To>{static_cast<uint32_t>(rows), static_cast<uint32_t>(columns),
                                      static_cast<const From*>(from), static_cast<To*>(to)});
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
  Transpose(stream, planes.images, planes.channels, planes.pixels, from_type, from, to_type, to);
}

void ToPlanes(cudaStream_t stream, const Planes& planes, ElementType from_type, const void* from,
              ElementType to_type, void* to) {
  Transpose(stream, planes.images, planes.pixels, planes.channels, from_type, from, to_type, to);
}

void Convert(cudaStream_t stream, int64_t size, const float* from, ElementType type, void* to) {
  ForEachPack<ConvertBody>(stream, type, size, size, from, to);
}

}  // namespace evenshard::kernels
