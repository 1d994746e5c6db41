#ifndef PS_WORKER_COMPUTE_CUDA_KERNELS_H_
#define PS_WORKER_COMPUTE_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ps {

enum class ElementType { kFloat32, kBfloat16 };

constexpr size_t BytesOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

// [images, channels, pixels], as workers keep images and, read as [outputs, inputs, places], the
// weights of convolutions; and the same with the channels last.
struct Planes {
  int64_t images = 0;
  int64_t channels = 0;
  int64_t pixels = 0;

  int64_t size() const { return images * channels * pixels; }
};

// What cuDNN and cuBLAS leave to do: changes of layout, and whatever reads and writes every
// activation once, with as much of it as possible in one pass over the memory.
//
// Each function queues its work on `stream` and returns. Activations are channels-last: [images,
// pixels, channels], of `type`; where a function takes `rows`, they are images x pixels. Every
// pointer is aligned to 64 bytes, as the tensors of a model are.
// Everything computes in float32. A tensor has fewer than 2^31 elements. Throws CudaError.
namespace kernels {

// --- Layout ---

void ToChannelsLast(cudaStream_t stream, const Planes& planes, ElementType from_type,
                    const void* from, ElementType to_type, void* to);
void ToPlanes(cudaStream_t stream, const Planes& planes, ElementType from_type, const void* from,
              ElementType to_type, void* to);

// `size` floats, rounded to `type`.
void Convert(cudaStream_t stream, int64_t size, const float* from, ElementType type, void* to);

// --- Sums over rows ---

// The floats of scratch memory that a function with `sums` sums over the rows of each channel
// needs.
int64_t RowSumsScratch(int64_t rows, int64_t channels, int sums);

// values += bias, then max(values, 0) where `relu`. Null `bias`: none.
void AddBias(cudaStream_t stream, ElementType type, int64_t rows, int64_t channels,
             const float* bias, bool relu, void* values);
// The reverse. `relu`: sets the gradient to 0 where `values`, as AddBias left them, is 0.
// Then writes the gradient's sums to `bias_gradient`, unless it is null. Scratch: for 1 sum.
void AddBiasGradient(cudaStream_t stream, ElementType type, int64_t rows, int64_t channels,
                     const void* values, bool relu, void* gradient, float* bias_gradient,
                     float* scratch);

// --- Batch normalisation (Ioffe and Szegedy 2015) ---

// Of each channel over the rows; scale: 1 / sqrt(variance + epsilon).
struct ChannelStatistics {
  float* mean = nullptr;
  float* variance = nullptr;
  float* scale = nullptr;
};

struct BatchNormShape {
  ElementType type = ElementType::kFloat32;
  int64_t rows = 0;
  int64_t channels = 0;
  float epsilon = 0;
};

// Those of the batch. Scratch: for 1 sum, and `channels` floats more.
void BatchStatistics(cudaStream_t stream, const BatchNormShape& shape, const void* input,
                     const ChannelStatistics& statistics, float* scratch);
// Those that the running mean and variance give.
void RunningStatistics(cudaStream_t stream, const BatchNormShape& shape, const float* mean,
                       const float* variance, const ChannelStatistics& statistics);
void Normalize(cudaStream_t stream, const BatchNormShape& shape, const void* input,
               const ChannelStatistics& statistics, const float* weight, const float* bias,
               bool relu, void* output);
// From the gradient by the output, masked in place as in AddBiasGradient where `relu`: those by
// weight, bias and, unless null, input. Scratch: for 2 sums, and 2 x `channels` floats more.
void NormalizeGradient(cudaStream_t stream, const BatchNormShape& shape, const void* input,
                       const ChannelStatistics& statistics, const float* weight, bool relu,
                       const void* output, void* output_gradient, float* weight_gradient,
                       float* bias_gradient, void* input_gradient, float* scratch);
// What a shard subtracts from running statistics, momentum * (running - the batch's), where the
// batch's variance is the unbiased one.
struct RunningPush {
  float momentum = 0;
  const float* mean = nullptr;
  const float* variance = nullptr;
  float* mean_push = nullptr;
  float* variance_push = nullptr;
};
void PushRunningStatistics(cudaStream_t stream, const BatchNormShape& shape,
                           const ChannelStatistics& statistics, const RunningPush& push);

// --- Pooling ---

struct PoolShape {
  int64_t images = 0;
  int64_t channels = 0;
  int64_t input_height = 0, input_width = 0;
  int64_t output_height = 0, output_width = 0;
  int64_t kernel = 0, stride = 0, padding = 0;  // kernel: at most 255
};

// `places`: by output element, the place in its window of the first maximum.
void MaxPool(cudaStream_t stream, ElementType type, const PoolShape& shape, const void* input,
             void* output, uint16_t* places);
void MaxPoolGradient(cudaStream_t stream, ElementType type, const PoolShape& shape,
                     const uint16_t* places, const void* output_gradient, void* input_gradient);
// Over all pixels of an image.
void AveragePool(cudaStream_t stream, ElementType type, const Planes& planes, const void* input,
                 void* output);
void AveragePoolGradient(cudaStream_t stream, ElementType type, const Planes& planes,
                         const void* output_gradient, void* input_gradient);

// --- Element by element ---

// from where output > 0, else 0. `to` may be `from`.
void ReluGradient(cudaStream_t stream, ElementType type, int64_t size, const void* output,
                  const void* from, void* to);
// output = max(a + b, 0).
void AddRelu(cudaStream_t stream, ElementType type, int64_t size, const void* a, const void* b,
             void* output);
// sum = a + b. `sum` may be `a`.
void Add(cudaStream_t stream, ElementType type, int64_t size, const void* a, const void* b,
         void* sum);
// Multiplies each element by 0 with `probability`, else by 1 / (1 - probability): by the number
// of the random stream (seed, stream_id) at the element's place in [images, channels, pixels], as
// CounterRandom gives it.
void Dropout(cudaStream_t stream, ElementType type, const Planes& planes, float probability,
             uint64_t seed, uint64_t stream_id, void* values);

// --- Loss ---

// Of one image.
struct ImageLoss {
  float loss = 0;       // -log softmax(scores)[label]
  int32_t correct = 0;  // 1 where the largest score is the label's alone
};

// The floats of scratch memory that SoftmaxCrossEntropy needs.
int64_t SoftmaxScratch(int64_t images);

// `scores`: [images, classes]. Writes the first `used` images' losses and, unless `gradient` is
// null, the gradient of their mean by the scores, 0 for the others.
void SoftmaxCrossEntropy(cudaStream_t stream, ElementType type, int64_t images, int64_t used,
                         int64_t classes, const void* scores, const int32_t* labels,
                         ImageLoss* losses, void* gradient, float* scratch);

}  // namespace kernels
}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_KERNELS_H_
