#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_LAUNCH_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_LAUNCH_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/kernels.h"

namespace evenshard::kernels {

// The parts that kernels are made of. nvcc compiles kernels for devices. As ordinary C++, for tests
// without a device, the same bodies run on the CPU, as host functions in the stream.

#ifdef __CUDACC__
constexpr int kBlockThreads = 256;

template <typename Body>
__global__ void RunBody(uint32_t count, Body body) {
  const uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x;
  if (i < count) body(i);
}

template <typename Body>
void Launch(cudaStream_t stream, uint32_t count, const Body& body) {
  const uint32_t blocks = count / kBlockThreads + (count % kBlockThreads != 0);
  RunBody<<<blocks, kBlockThreads, 0, stream>>>(count, body);
  Check(cudaGetLastError(), "starting a kernel");
}
#else
template <typename Body>
void Launch(cudaStream_t stream, uint32_t count, const Body& body) {
  struct Job {
    uint32_t count;
    Body body;
  };
  const auto run = [](void* data) {
    const Job* const job = static_cast<const Job*>(data);
    for (uint32_t i = 0; i < job->count; ++i) job->body(i);
    delete job;
  };
  Check(cudaLaunchHostFunc(stream, run, new Job{count, body}), "starting a kernel");
}
#endif

// Runs body(i) for each i in [0, count).
template <typename Body>
void ForEach(cudaStream_t stream, int64_t count, const Body& body) {
  if (count == 0) return;
  if (count < 0 || count > INT32_MAX) {
    throw CudaError(CudaError::Kind::kOther,
                    "a kernel for " + std::to_string(count) + " elements: more than 2^31 - 1");
  }
  Launch(stream, static_cast<uint32_t>(count), body);
}

// Calls f with a value of the C++ type that corresponds to `type`.
template <typename F>
void WithType(ElementType type, F f) {
  if (type == ElementType::kFloat32) {
    f(float{});
  } else {
    f(__nv_bfloat16{});
  }
}

// Runs Body<T>{arguments...} for each of `count` elements of `type`.
template <template <typename> class Body, typename... Arguments>
void ForEachElement(cudaStream_t stream, ElementType type, int64_t count, Arguments... arguments) {
  WithType(type, [&](auto value) { ForEach(stream, count, Body<decltype(value)>{arguments...}); });
}

// --- Packs: neighbouring channels that one thread reads and writes at once, 16 bytes ---

template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

template <typename T>
constexpr int kPack = 16 / sizeof(T);

// Calls f with the length of the packs of `channels`, as an integral constant, and a value of the
// C++ type that corresponds to `type`.
template <typename F>
void WithPack(ElementType type, int64_t channels, F f) {
  WithType(type, [&](auto value) {
    constexpr int kLength = kPack<decltype(value)>;
    if (channels % kLength == 0) {
      f(std::integral_constant<int, kLength>{}, value);
    } else {
      f(std::integral_constant<int, 1>{}, value);
    }
  });
}

// Runs Body<N, T>{arguments...} for each pack of `count` elements, which are rows of `channels`.
template <template <int, typename> class Body, typename... Arguments>
void ForEachPack(cudaStream_t stream, ElementType type, int64_t channels, int64_t count,
                 Arguments... arguments) {
  WithPack(type, channels, [&](auto n, auto value) {
    ForEach(stream, count / n, Body<n, decltype(value)>{arguments...});
  });
}

__host__ __device__ inline float ToFloat(float value) { return value; }
__host__ __device__ inline float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__host__ __device__ inline T FromFloat(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return __float2bfloat16_rn(value);
  }
}

// Reads pack `index` at `data`, which must be aligned to packs, as floats.
template <int N, typename T>
__host__ __device__ inline void Load(const void* data, size_t index, float (&out)[N], T) {
  const Pack<T, N> pack = static_cast<const Pack<T, N>*>(data)[index];
  for (int i = 0; i < N; ++i) out[i] = ToFloat(pack.values[i]);
}

template <int N, typename T>
__host__ __device__ inline void Store(const float (&values)[N], void* data, size_t index, T) {
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) pack.values[i] = FromFloat<T>(values[i]);
  static_cast<Pack<T, N>*>(data)[index] = pack;
}

// Unlike fmaxf, returns NaN for NaN.
__host__ __device__ inline float MaxWithZero(float value) { return value < 0 ? 0 : value; }

}  // namespace evenshard::kernels

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_LAUNCH_H_
