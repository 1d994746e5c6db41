#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/kernels/launch.h"

namespace evenshard::kernels {
namespace {

// PoolShape in the types that the kernels calculate with.
struct PoolSizes {
  explicit PoolSizes(const PoolShape& shape)
      : channels(static_cast<uint32_t>(shape.channels)),
        input_height(static_cast<int>(shape.input_height)),
        input_width(static_cast<int>(shape.input_width)),
        output_height(static_cast<int>(shape.output_height)),
        output_width(static_cast<int>(shape.output_width)),
        kernel(static_cast<int>(shape.kernel)),
        stride(static_cast<int>(shape.stride)),
        padding(static_cast<int>(shape.padding)) {}

  uint32_t channels;
  int input_height, input_width, output_height, output_width, kernel, stride, padding;
};

// The place of pack `index` in [images, height, width, channels].
struct PackPlace {
  __host__ __device__ PackPlace(uint32_t index, uint32_t packs, int height, int width) {
    pack = index % packs;
    const uint32_t pixel = index / packs;
    column = static_cast<int>(pixel % width);
    const uint32_t line = pixel / width;
    row = static_cast<int>(line % height);
    image = line / height;
  }

  uint32_t image, pack;
  int row, column;
};

template <int N, typename T>
struct MaxPoolBody {
  PoolSizes sizes;
  const void* input;
  void* output;
  uint16_t* places;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t packs = sizes.channels / N;
    const PackPlace at(i, packs, sizes.output_height, sizes.output_width);
    const int row = at.row * sizes.stride - sizes.padding;
    const int column = at.column * sizes.stride - sizes.padding;

    float largest[N] = {};
    uint16_t place[N] = {};
    bool first = true;
    for (int y = 0; y < sizes.kernel; ++y) {
      if (row + y < 0 || row + y >= sizes.input_height) continue;
      for (int x = 0; x < sizes.kernel; ++x) {
        if (column + x < 0 || column + x >= sizes.input_width) continue;
        const uint32_t input_pixel =
            (at.image * sizes.input_height + (row + y)) * sizes.input_width + (column + x);
        float value[N];
        Load(input, static_cast<size_t>(input_pixel) * packs + at.pack, value, T{});
        for (int k = 0; k < N; ++k) {
          // The first NaN of a window counts as the largest. A comparison with NaN is false.
          if (!first && (value[k] <= largest[k] || isnan(largest[k]))) continue;
          largest[k] = value[k];
          place[k] = static_cast<uint16_t>(y * sizes.kernel + x);
        }
        first = false;
      }
    }
    Store(largest, output, i, T{});
    Pack<uint16_t, N> stored;
    for (int k = 0; k < N; ++k) stored.values[k] = place[k];
    reinterpret_cast<Pack<uint16_t, N>*>(places)[i] = stored;
  }
};

template <int N, typename T>
struct MaxPoolGradientBody {
  PoolSizes sizes;
  const uint16_t* places;
  const void* output_gradient;
  void* input_gradient;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t packs = sizes.channels / N;
    const PackPlace at(i, packs, sizes.input_height, sizes.input_width);
    const int row = at.row + sizes.padding;
    const int column = at.column + sizes.padding;

    float sum[N] = {};
    // Visit the windows that hold the pixel.
    const int first_y = row < sizes.kernel ? 0 : (row - sizes.kernel) / sizes.stride + 1;
    const int first_x = column < sizes.kernel ? 0 : (column - sizes.kernel) / sizes.stride + 1;
    for (int y = first_y; y < sizes.output_height && y * sizes.stride <= row; ++y) {
      for (int x = first_x; x < sizes.output_width && x * sizes.stride <= column; ++x) {
        const uint32_t output_pixel = (at.image * sizes.output_height + y) * sizes.output_width + x;
        const size_t index = static_cast<size_t>(output_pixel) * packs + at.pack;
        const int here = (row - y * sizes.stride) * sizes.kernel + (column - x * sizes.stride);
        const Pack<uint16_t, N> place = reinterpret_cast<const Pack<uint16_t, N>*>(places)[index];
        float gradient[N];
        Load(output_gradient, index, gradient, T{});
        for (int k = 0; k < N; ++k) sum[k] += place.values[k] == here ? gradient[k] : 0;
      }
    }
    Store(sum, input_gradient, i, T{});
  }
};

// Computes the same where windows lie side by side, one thread per pack of a window. Windows that
// the border cuts off have no output, and their pixels get 0.
template <int N, typename T>
struct SideBySideGradientBody {
  PoolSizes sizes;
  int window_rows, window_columns;
  const uint16_t* places;
  const void* output_gradient;
  void* input_gradient;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t packs = sizes.channels / N;
    const PackPlace window(i, packs, window_rows, window_columns);

    float gradient[N] = {};
    Pack<uint16_t, N> place = {};
    if (window.row < sizes.output_height && window.column < sizes.output_width) {
      const uint32_t pixel =
          (window.image * sizes.output_height + window.row) * sizes.output_width + window.column;
      const size_t index = static_cast<size_t>(pixel) * packs + window.pack;
      Load(output_gradient, index, gradient, T{});
      place = reinterpret_cast<const Pack<uint16_t, N>*>(places)[index];
    }
    for (int y = 0; y < sizes.kernel; ++y) {
      const int input_row = window.row * sizes.kernel + y;
      if (input_row >= sizes.input_height) break;
      for (int x = 0; x < sizes.kernel; ++x) {
        const int input_column = window.column * sizes.kernel + x;
        if (input_column >= sizes.input_width) break;
        float value[N];
        for (int k = 0; k < N; ++k) {
          value[k] = place.values[k] == y * sizes.kernel + x ? gradient[k] : 0;
        }
        const uint32_t pixel =
            (window.image * sizes.input_height + input_row) * sizes.input_width + input_column;
        Store(value, input_gradient, static_cast<size_t>(pixel) * packs + window.pack, T{});
      }
    }
  }
};

template <typename T>
struct AveragePoolBody {
  uint32_t channels, pixels;
  const void* input;
  void* output;

  __host__ __device__ void operator()(uint32_t i) const {
    const T* const image =
        static_cast<const T*>(input) + static_cast<size_t>(i / channels) * pixels * channels;
    float sum = 0;
    for (uint32_t pixel = 0; pixel < pixels; ++pixel) {
      sum += ToFloat(image[pixel * channels + i % channels]);
    }
    static_cast<T*>(output)[i] = FromFloat<T>(sum / pixels);
  }
};

template <typename T>
struct AveragePoolGradientBody {
  uint32_t channels, pixels;
  const void* output_gradient;
  void* input_gradient;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t image = i / (channels * pixels);
    const T gradient = static_cast<const T*>(output_gradient)[image * channels + i % channels];
    static_cast<T*>(input_gradient)[i] = FromFloat<T>(ToFloat(gradient) / pixels);
  }
};

}  // namespace

void MaxPool(cudaStream_t stream, ElementType type, const PoolShape& shape, const void* input,
             void* output, uint16_t* places) {
  const int64_t pixels = shape.images * shape.output_height * shape.output_width;
  ForEachPack<MaxPoolBody>(stream, type, shape.channels, pixels * shape.channels, PoolSizes(shape),
                           input, output, places);
}

void MaxPoolGradient(cudaStream_t stream, ElementType type, const PoolShape& shape,
                     const uint16_t* places, const void* output_gradient, void* input_gradient) {
  if (shape.stride == shape.kernel && shape.padding == 0) {
    const auto windows = [&](int64_t pixels) { return (pixels + shape.kernel - 1) / shape.kernel; };
    const int64_t rows = windows(shape.input_height);
    const int64_t columns = windows(shape.input_width);
    ForEachPack<SideBySideGradientBody>(
        stream, type, shape.channels, shape.images * rows * columns * shape.channels,
        PoolSizes(shape), static_cast<int>(rows), static_cast<int>(columns), places,
        output_gradient, input_gradient);
    return;
  }
  const int64_t pixels = shape.images * shape.input_height * shape.input_width;
  ForEachPack<MaxPoolGradientBody>(stream, type, shape.channels, pixels * shape.channels,
                                   PoolSizes(shape), places, output_gradient, input_gradient);
}

void AveragePool(cudaStream_t stream, ElementType type, const Planes& planes, const void* input,
                 void* output) {
  ForEachElement<AveragePoolBody>(stream, type, planes.images * planes.channels,
                                  static_cast<uint32_t>(planes.channels),
                                  static_cast<uint32_t>(planes.pixels), input, output);
}

void AveragePoolGradient(cudaStream_t stream, ElementType type, const Planes& planes,
                         const void* output_gradient, void* input_gradient) {
  ForEachElement<AveragePoolGradientBody>(
      stream, type, planes.size(), static_cast<uint32_t>(planes.channels),
      static_cast<uint32_t>(planes.pixels), output_gradient, input_gradient);
}

}  // namespace evenshard::kernels
