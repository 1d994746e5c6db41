#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_ROW_SUMS_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_ROW_SUMS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "worker/compute/cuda/kernels/launch.h"

namespace evenshard::kernels {

// Sums over the rows of each channel. They are computed from partial sums in a fixed order, so that
// equal values give bit-identical sums.

// The least number of rows that one thread sums, and a number of threads that fills any device.
inline constexpr int64_t kRowsPerThread = 8;
inline constexpr int64_t kThreads = 1 << 17;

inline int64_t RowGroups(int64_t rows, int64_t packs) {
  return std::max<int64_t>(1, std::min(rows / kRowsPerThread, kThreads / packs));
}

// Returns the number of groups to which the partial sums of `groups` groups are reduced next.
inline int64_t FewerGroups(int64_t groups) {
  constexpr int64_t kFew = 128;
  return groups <= kFew ? 1 : static_cast<int64_t>(std::sqrt(static_cast<double>(groups)));
}

// Thread (group, pack) sums the rows group, group + groups, ... of one pack of channels. `Row` adds
// one row's values to each of its Row::kSums sums. The result is [groups, sums, channels].
template <int N, typename Row>
struct RowSumsBody {
  uint32_t rows, packs, groups;
  Row row;
  float* out;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t pack = i % packs;
    const uint32_t group = i / packs;
    float sums[Row::kSums][N] = {};
    for (uint32_t r = group; r < rows; r += groups) row(r * packs + pack, pack, sums);
    for (int s = 0; s < Row::kSums; ++s) {
      Store(sums[s], out, (static_cast<size_t>(group) * Row::kSums + s) * packs + pack, float{});
    }
  }
};

// Does the same with partial sums, and reads several of them at once.
struct PartSumsBody {
  uint32_t rows, width, groups;
  const float* parts;
  float* out;

  __host__ __device__ void operator()(uint32_t i) const {
    constexpr uint32_t kAtOnce = 4;
    const uint32_t column = i % width;
    uint32_t r = i / width;
    float sums[kAtOnce] = {};
    for (; r + (kAtOnce - 1) * groups < rows; r += kAtOnce * groups) {
      for (uint32_t k = 0; k < kAtOnce; ++k) sums[k] += parts[(r + k * groups) * width + column];
    }
    for (; r < rows; r += groups) sums[0] += parts[r * width + column];
    out[i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
};

// Sums over all rows, and writes [sums, channels] to `out`.
template <int N, typename Row>
void SumRows(cudaStream_t stream, int64_t rows, int64_t channels, const Row& row, float* scratch,
             float* out) {
  const int64_t packs = channels / N;
  int64_t groups = RowGroups(rows, packs);
  float* parts = groups == 1 ? out : scratch;
  ForEach(stream, groups * packs,
          RowSumsBody<N, Row>{static_cast<uint32_t>(rows), static_cast<uint32_t>(packs),
                              static_cast<uint32_t>(groups), row, parts});
  const int64_t width = Row::kSums * channels;
  while (groups > 1) {
    const int64_t fewer = FewerGroups(groups);
    float* const sums = fewer == 1 ? out : parts + groups * width;
    ForEach(stream, fewer * width,
            PartSumsBody{static_cast<uint32_t>(groups), static_cast<uint32_t>(width),
                         static_cast<uint32_t>(fewer), parts, sums});
    parts = sums;
    groups = fewer;
  }
}

// Reads the gradient with respect to an activation. If the activation is given, first sets the
// gradient to 0, in place, where the activation is not above 0.
template <int N, typename T>
struct MaskedGradient {
  const void* values;  // or null
  void* gradient;

  __host__ __device__ void operator()(uint32_t i, float (&out)[N]) const {
    Load(gradient, i, out, T{});
    if (values == nullptr) return;
    float value[N];
    Load(values, i, value, T{});
    for (int k = 0; k < N; ++k) out[k] = value[k] > 0 ? out[k] : 0;
    Store(out, gradient, i, T{});
  }
};

}  // namespace evenshard::kernels

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_ROW_SUMS_H_
