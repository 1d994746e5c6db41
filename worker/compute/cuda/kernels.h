#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace evenshard {

enum class ElementType { kFloat32, kBfloat16 };

constexpr size_t BytesOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

// The sizes of [images, channels, pixels], the layout in which workers keep images, and of the
// channels-last layout [images, pixels, channels]. The weights of convolutions fit both layouts if
// read as [outputs, inputs, places].
struct Planes {
  int64_t images = 0;
  int64_t channels = 0;
  int64_t pixels = 0;

  int64_t size() const { return images * channels * pixels; }
};

// The operations that cuDNN and cuBLAS do not cover: changes of layout, and operations that read or
// write each activation once. As many of the latter as possible share one pass over the memory.
//
// Each function queues its work on `stream` and returns. Activations are channels-last: [images,
// pixels, channels], of `type`. Where a function takes `rows`, they are images x pixels. Every
// pointer is aligned to 64 bytes, as the tensors of a model are. All arithmetic is in float32. A
// tensor has fewer than 2^31 elements. Throws CudaError.
namespace kernels {

// --- Layout ---

void ToChannelsLast(cudaStream_t stream, const Planes& planes, ElementType from_type,
                    const void* from, ElementType to_type, void* to);
void ToPlanes(cudaStream_t stream, const Planes& planes, ElementType from_type, const void* from,
              ElementType to_type, void* to);

// Rounds `size` floats to `type`.
void Convert(cudaStream_t stream, int64_t size, const float* from, ElementType type, void* to);

// --- Sums over rows ---

// Returns how many floats of scratch memory are needed to sum over the rows of each channel, for a
// function that computes `sums` such sums.
int64_t RowSumsScratch(int64_t rows, int64_t channels, int sums);

// Computes values += bias, unless `bias` is null, and then values = max(values, 0) if `relu`.
void AddBias(cudaStream_t stream, ElementType type, int64_t rows, int64_t channels,
             const float* bias, bool relu, void* values);
// The backward pass of AddBias, whose results `values` holds. If `relu`, sets the gradient to 0
// where a value is not above 0. Then writes the gradient's sums over the rows to `bias_gradient`,
// unless it is null. `scratch` holds RowSumsScratch for 1 sum.
void AddBiasGradient(cudaStream_t stream, ElementType type, int64_t rows, int64_t channels,
                     const void* values, bool relu, void* gradient, float* bias_gradient,
                     float* scratch);

// --- Batch normalisation (Ioffe and Szegedy 2015) ---

// Statistics of each channel over the rows. `scale` is 1 / sqrt(variance + epsilon).
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

// Computes the statistics of the batch. `scratch` holds RowSumsScratch for 1 sum, and `channels`
// floats more.
void BatchStatistics(cudaStream_t stream, const BatchNormShape& shape, const void* input,
                     const ChannelStatistics& statistics, float* scratch);
// Derives the statistics from the running mean and variance.
void RunningStatistics(cudaStream_t stream, const BatchNormShape& shape, const float* mean,
                       const float* variance, const ChannelStatistics& statistics);
void Normalize(cudaStream_t stream, const BatchNormShape& shape, const void* input,
               const ChannelStatistics& statistics, const float* weight, const float* bias,
               bool relu, void* output);
// Computes the gradients with respect to the weight, the bias and, unless `input_gradient` is null,
// the input. If `relu`, first masks `output_gradient` in place, as AddBiasGradient does. `scratch`
// holds RowSumsScratch for 2 sums, and 2 x `channels` floats more.
void NormalizeGradient(cudaStream_t stream, const BatchNormShape& shape, const void* input,
                       const ChannelStatistics& statistics, const float* weight, bool relu,
                       const void* output, void* output_gradient, float* weight_gradient,
                       float* bias_gradient, void* input_gradient, float* scratch);
// The values that a shard subtracts from the running statistics: momentum * (running - batch's).
// The batch's variance is the unbiased estimate.
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
  int64_t kernel = 0, stride = 0, padding = 0;  // kernel is at most 255
};

// Writes to `places`, for each output element, the place of the first maximum in its window.
void MaxPool(cudaStream_t stream, ElementType type, const PoolShape& shape, const void* input,
             void* output, uint16_t* places);
void MaxPoolGradient(cudaStream_t stream, ElementType type, const PoolShape& shape,
                     const uint16_t* places, const void* output_gradient, void* input_gradient);
// Averages over all pixels of an image.
void AveragePool(cudaStream_t stream, ElementType type, const Planes& planes, const void* input,
                 void* output);
void AveragePoolGradient(cudaStream_t stream, ElementType type, const Planes& planes,
                         const void* output_gradient, void* input_gradient);

// --- Element by element ---

// Computes to = from where output > 0, and 0 elsewhere. `to` may be `from`.
void ReluGradient(cudaStream_t stream, ElementType type, int64_t size, const void* output,
                  const void* from, void* to);
// Computes output = max(a + b, 0).
void AddRelu(cudaStream_t stream, ElementType type, int64_t size, const void* a, const void* b,
             void* output);
// Computes sum = a + b. `sum` may be `a`.
void Add(cudaStream_t stream, ElementType type, int64_t size, const void* a, const void* b,
         void* sum);
// Sets each element to 0 with `probability`, and multiplies the others by 1 / (1 - probability).
// Element i, counted in the order [images, channels, pixels], is set to 0 if number i of the random
// stream (seed, stream_id), as CounterRandom defines it, is below `probability`.
void Dropout(cudaStream_t stream, ElementType type, const Planes& planes, float probability,
             uint64_t seed, uint64_t stream_id, void* values);

// --- Loss ---

// The loss of one image.
struct ImageLoss {
  float loss = 0;       // -log softmax(scores)[label]
  int32_t correct = 0;  // 1 if the label alone has the largest score
};

// Returns how many floats of scratch memory SoftmaxCrossEntropy needs.
int64_t SoftmaxScratch(int64_t images);

// `scores` is [images, classes]. Writes the losses of the first `used` images. Unless `gradient` is
// null, also writes the gradient of their mean with respect to the scores, which is 0 for the
// remaining images.
void SoftmaxCrossEntropy(cudaStream_t stream, ElementType type, int64_t images, int64_t used,
                         int64_t classes, const void* scores, const int32_t* labels,
                         ImageLoss* losses, void* gradient, float* scratch);

}  // namespace kernels
}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_KERNELS_H_
