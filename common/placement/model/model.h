#ifndef EVENSHARD_COMMON_PLACEMENT_MODEL_MODEL_H_
#define EVENSHARD_COMMON_PLACEMENT_MODEL_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/encoding.pb.h"
#include "proto/model.pb.h"

namespace evenshard {

// Tensors and slices begin at multiples of this many elements in memory, that is of 64 bytes.
inline constexpr int64_t kAlignment = 16;

// Channels, height and width of one image or activation, stored in that order.
// The output of a Linear layer is {features, 1, 1}.
struct Shape3 {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;

  int64_t size() const { return channels * height * width; }
  std::string ToString() const;  // "3x224x224"
  friend bool operator==(const Shape3&, const Shape3&) = default;
};

// The distribution of a tensor's initial elements (see common/placement/model/initializer.h).
struct Initializer {
  enum Kind {
    kZeros,
    kOnes,
    kUniform,  // U(-scale, scale)
    kNormal,   // N(0, scale^2)
  };
  Kind kind = kZeros;
  double scale = 0;
};

// The role of a tensor: what workers push for it, and how a shard applies that.
enum class TensorRole {
  kParameter = DeclaredTensor::PARAMETER,  // a gradient, which goes through the optimizer
  // Workers push momentum * (running value - value of the batch), which is subtracted as it is.
  // Evaluation normalises with the running value.
  kRunningStatistic = DeclaredTensor::RUNNING_STATISTIC,
  // Worker 0 pushes a value, of any bits, when it has changed, and that replaces the last one.
  // Always travels in float32. Workers bring such tensors; the built-in models have none.
  kBuffer = DeclaredTensor::BUFFER,
};

// One tensor of a model, row-major. Its master at the shards is float32.
struct Tensor {
  std::string name;            // "fc6/weight"
  std::vector<int64_t> shape;  // {4096, 25088}
  int64_t size = 0;            // elements
  int64_t offset = 0;          // first element in a worker's float32 buffer, a multiple of 16
  Initializer initializer;
  TensorRole role = TensorRole::kParameter;
  Encoding type = FLOAT32;       // of its parameters in a worker's memory
  int64_t parameters_begin = 0;  // where they lie there, in bytes, a multiple of 64
  int64_t gradient_begin = 0;    // the same of its gradient

  // The type of its gradient there. Gradients of FLOAT16 parameters have a scale, and without it
  // FLOAT16 cannot hold them.
  Encoding gradient_type() const { return type == BFLOAT16 ? BFLOAT16 : FLOAT32; }
};

// Stands in Layer::inputs for the images, which no layer computes.
inline constexpr int kImages = -1;

// One layer, which owns the tensors [first_tensor, first_tensor + tensor_count) of the model. Its
// input and output have their full shapes even if ModelSpec.shrink makes its tensors smaller.
struct Layer {
  std::string name;
  LayerSpec spec;
  // The layers whose outputs this one reads, or kImages. All of them come before this layer. There
  // is one input, except that the end of a residual block, relu(body + shortcut), has two of equal
  // shape: first the body's, then the shortcut's.
  std::vector<int> inputs;
  Shape3 input;
  Shape3 output;
  int first_tensor = 0;
  int tensor_count = 0;  // 0 if the layer has no parameters
  int64_t elements = 0;  // in all its tensors together
};

// An immutable, checked model: its layers in the order of the forward pass, and their tensors in
// the same order ("model order"). A residual block is flattened into that list: first its body,
// then its shortcut, then its end, a layer with the block's name.
//
// A worker keeps all parameters in one buffer, and all gradients in another. Every tensor begins at
// a 64-byte boundary of the buffer, and the gaps are 0. If all tensors are FLOAT32, as those of all
// models are that workers do not bring, both buffers are of buffer_size() floats. Otherwise each
// tensor takes what its type needs. What is assigned is float32 whatever the type, and lies in the
// buffer of the gradients as a float32 model would (Tensor::offset); so this buffer always has
// buffer_size() floats, of which training uses the first gradient_bytes().
class Model {
 public:
  // A model that workers bring has layers of which only the names and the tensors are known, and no
  // input. Errors: INVALID_ARGUMENT if the layers do not fit one another, a size is not positive or
  // too large, a name repeats, the built-in name is unknown, or `shrink` would leave a tensor
  // without elements. The message names the field of the ModelSpec, as in `layer[2] "fc1":
  // linear.out_features ...`.
  static absl::StatusOr<Model> Create(const ModelSpec& spec);

  // The built-in model's name, "custom", or "from_workers".
  const std::string& name() const { return name_; }
  const Shape3& input() const { return input_; }
  int64_t classes() const { return layers_.back().output.size(); }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // The elements of all parameters. This is the published size of a model, which leaves running
  // statistics and buffers out.
  int64_t parameter_count() const { return parameter_count_; }
  // The elements of all tensors.
  int64_t element_count() const { return element_count_; }
  int64_t buffer_size() const { return buffer_size_; }
  // The bytes of a worker's parameters, and of its gradients, multiples of 64.
  int64_t parameter_bytes() const { return parameter_bytes_; }
  int64_t gradient_bytes() const { return gradient_bytes_; }
  // A range [begin, begin + size) of floats in a worker's buffer.
  struct Range {
    int64_t begin;
    int64_t size;
  };
  // The range from the first to the last element of a layer's tensors, with the gaps between them.
  // REQUIRES: layer.tensor_count > 0.
  Range RangeOf(const Layer& layer) const;

 private:
  friend class ModelBuilder;
  std::string name_;
  Shape3 input_;
  std::vector<Layer> layers_;
  std::vector<Tensor> tensors_;
  int64_t parameter_count_ = 0;
  int64_t element_count_ = 0;
  int64_t buffer_size_ = 0;
  int64_t parameter_bytes_ = 0;
  int64_t gradient_bytes_ = 0;
};

// Errors: INVALID_ARGUMENT if a batch normalisation would see only one value per channel, since it
// needs at least two. The message names the layer and the smallest batch.
absl::Status CheckBatchSize(const Model& model, int64_t batch_size);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_MODEL_MODEL_H_
