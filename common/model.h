#ifndef PS_COMMON_MODEL_H_
#define PS_COMMON_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model.pb.h"

namespace ps {

// Where tensors and slices begin in memory, in elements: multiples of 64 bytes.
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

// How a tensor starts, element by element (see common/initializer.h).
enum class Initializer {
  kHeUniform,  // U(-b, b), b = sqrt(6 / fan_in): He et al. 2015, eq. 10, for uniform numbers
  kZeros,
  kOnes,
};

// What a shard does with what workers push for a tensor.
enum class TensorRole {
  kParameter,         // a gradient, for the optimizer
  kRunningStatistic,  // value - observed, times a momentum: subtracted as it is. Read in evaluation
};

// One tensor of a model, float32, row-major.
struct Tensor {
  std::string name;            // "fc6/weight"
  std::vector<int64_t> shape;  // {4096, 25088}
  int64_t size = 0;            // elements
  int64_t offset = 0;          // of its first element in a worker's buffer, a multiple of 16
  int64_t fan_in = 0;          // inputs summed into one output; 0 where it has no meaning
  Initializer initializer = Initializer::kZeros;
  TensorRole role = TensorRole::kParameter;
};

// The images, where a layer's input is named by the layer that gives it.
inline constexpr int kImages = -1;

// One layer, with the tensors [first_tensor, first_tensor + tensor_count) of the model. Its
// shapes are those of the full layer, also where ModelSpec.shrink makes the tensors smaller.
struct Layer {
  std::string name;
  LayerSpec spec;
  // The layers, all before this one, whose outputs it reads, or kImages. One; two for the end
  // of a residual block, which gives relu(body + shortcut): of equal shapes, the body's first.
  std::vector<int> inputs;
  Shape3 input;
  Shape3 output;
  int first_tensor = 0;
  int tensor_count = 0;  // 0: a layer without parameters
  int64_t elements = 0;  // of its tensors together
};

// An immutable, checked model: its layers in the order of the forward pass
// and their tensors in the same order ("model order"). The layers of a residual block
// stand in line: its body, then its shortcut, then its end, a layer with the block's name.
//
// A worker keeps parameters, and gradients, in one buffer of buffer_size()
// floats in which every tensor begins at a 64-byte boundary; the gaps are 0.
class Model {
 public:
  // Errors: INVALID_ARGUMENT when the layers do not fit one another, a size is
  // not positive or too large, names repeat, the built-in name is unknown, or `shrink`
  // would leave a tensor without elements. The
  // message names the field of the ModelSpec: layer[2] "fc1": linear.out_features ...
  static absl::StatusOr<Model> Create(const ModelSpec& spec);

  const std::string& name() const { return name_; }  // the built-in's, or "custom"
  const Shape3& input() const { return input_; }
  int64_t classes() const { return layers_.back().output.size(); }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Elements of the parameters, as models are compared by; of all tensors.
  int64_t parameter_count() const { return parameter_count_; }
  int64_t element_count() const { return element_count_; }
  int64_t buffer_size() const { return buffer_size_; }
  // Where a layer with tensors has them in a buffer: the first float, and how many there are from
  // there on, gaps included.
  struct Range {
    int64_t begin;
    int64_t size;
  };
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
};

// Errors: INVALID_ARGUMENT where batch normalisation would have one value per channel to
// normalise by. The message names the layer and the smallest batch.
absl::Status CheckBatchSize(const Model& model, int64_t batch_size);

}  // namespace ps

#endif  // PS_COMMON_MODEL_H_
