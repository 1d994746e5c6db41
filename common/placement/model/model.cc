#include "common/placement/model/model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/config/parameter_encodings.h"
#include "common/placement/model/layer_initializer.h"
#include "common/placement/model/model_zoo.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

using LayerSpecs = google::protobuf::RepeatedPtrField<LayerSpec>;

// Sizes are checked against these limits before they are multiplied, so no product overflows.
constexpr int64_t kMaxElements = int64_t{1} << 36;  // 256 GiB of float32
constexpr int64_t kMaxActivation = (int64_t{1} << 31) - 1;

constexpr int64_t kAlignmentBytes = kAlignment * int64_t{sizeof(float)};

constexpr size_t kMaxNameLength = 512;  // of a tensor that a worker declares

// Returns the product of positive factors, or -1 if it exceeds `limit`.
int64_t LimitedProduct(const std::vector<int64_t>& factors, int64_t limit) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor > limit / product) return -1;
    product *= factor;
  }
  return product;
}

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

absl::string_view KindName(const LayerSpec& spec) {
  return LayerSpec::descriptor()->FindFieldByNumber(spec.kind_case())->name();
}

bool HasParameters(const LayerSpec& spec) {
  return spec.has_conv() || spec.has_linear() || spec.has_batch_norm();
}

// An activation: the output of a layer, or the images.
struct Source {
  int layer = kImages;
  Shape3 shape;
};

struct Size {
  absl::string_view field;
  int64_t value;
};

absl::Status CheckPositive(std::initializer_list<Size> sizes) {
  for (const Size& size : sizes) {
    if (size.value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(size.field, " must be given and positive, it is ", size.value));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPadding(absl::string_view field, int64_t padding, int64_t limit) {
  if (padding >= 0 && padding <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", padding, ", allowed is 0 to ", limit));
}

// Returns the output shape of a convolution or a pooling with a square window.
absl::StatusOr<Shape3> Windowed(const Shape3& input, int64_t channels, int64_t kernel,
                                int64_t stride, int64_t padding) {
  const int64_t height = input.height + 2 * padding;
  const int64_t width = input.width + 2 * padding;
  if (kernel > std::min(height, width)) {
    return absl::InvalidArgumentError(absl::StrCat("the kernel ", kernel, "x", kernel,
                                                   " does not fit its input ", input.ToString(),
                                                   " with padding ", padding));
  }
  return Shape3{channels, (height - kernel) / stride + 1, (width - kernel) / stride + 1};
}

}  // namespace

std::string Shape3::ToString() const { return absl::StrCat(channels, "x", height, "x", width); }

// Checks the layers of a spec one by one and adds them to a model.
class ModelBuilder {
 public:
  explicit ModelBuilder(const LayerInitializers& initializers = {}) : initializers_(initializers) {}

  absl::StatusOr<Model> Build(const ModelSpec& spec, int64_t shrink, std::string name) {
    model_.name_ = std::move(name);
    RETURN_IF_ERROR(SetInput(spec.input()));
    if (spec.layer().empty()) {
      return absl::InvalidArgumentError("layer: the model has no layers, it needs at least one");
    }
    RETURN_IF_ERROR(CollectNames(spec.layer(), "layer"));
    ASSIGN_OR_RETURN(const Source output,
                     AddLayers(spec.layer(), "layer", {.shape = model_.input_}));
    if (output.shape.height != 1 || output.shape.width != 1) {
      return absl::InvalidArgumentError(absl::StrCat("the last layer, ", model_.layers_.back().name,
                                                     ", gives ", output.shape.ToString(),
                                                     ", but a model must end as {classes}x1x1"));
    }
    if (model_.parameter_count_ == 0) {
      return absl::InvalidArgumentError(
          "layer: the model has no parameters, it needs a layer that has some");
    }
    RETURN_IF_ERROR(Shrink(shrink));
    return std::move(model_);
  }

  // Builds a model of which only the tensors are known.
  absl::StatusOr<Model> BuildDeclared(const FromWorkers& declared) {
    model_.name_ = "from_workers";
    for (int i = 0; i < declared.tensor_size(); ++i) {
      absl::Status status = AddDeclared(declared.tensor(i));
      if (!status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("from_workers.", Path("tensor", i), ": ", status.message()));
      }
    }
    if (model_.parameter_count_ == 0) {
      return absl::InvalidArgumentError(
          "from_workers: the model has no parameters, it needs a tensor that is one");
    }
    return std::move(model_);
  }

 private:
  absl::Status AddDeclared(const DeclaredTensor& declared) {
    const std::string& name = declared.name();
    if (name.empty() || name.size() > kMaxNameLength ||
        std::any_of(name.begin(), name.end(), absl::ascii_iscntrl)) {
      return absl::InvalidArgumentError(absl::StrCat("the name is \"", absl::CEscape(name),
                                                     "\", allowed: 1 to ", kMaxNameLength,
                                                     " bytes without control characters"));
    }
    if (name == "__metadata__") {
      return absl::InvalidArgumentError(
          "the name is \"__metadata__\", which is no tensor's in a file of safetensors, allowed: "
          "another name");
    }
    if (!names_.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the name \"", name, "\" is taken by an earlier tensor"));
    }
    std::vector<int64_t> shape(declared.shape().begin(), declared.shape().end());
    for (const int64_t extent : shape) {
      RETURN_IF_ERROR(CheckPositive({{absl::StrCat("each extent of ", name), extent}}));
    }
    const std::string layer = declared.has_layer() ? declared.layer() : LayerOf(name);
    if (model_.layers_.empty() || model_.layers_.back().name != layer) {
      Layer& added = model_.layers_.emplace_back();
      added.name = layer;
      added.first_tensor = static_cast<int>(model_.tensors_.size());
    }
    if (declared.type() != FLOAT32 && declared.role() != DeclaredTensor::PARAMETER) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " is ", EncodingName(declared.type()),
          " and no parameter, allowed: FLOAT32, in which all travels that is no parameter"));
    }
    if (!IsForParameters(declared.type())) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", EncodingName(declared.type()),
                       ", which is for gradients only, allowed: ", EncodingNames(IsForParameters)));
    }
    RETURN_IF_ERROR(AddTensor(name, std::move(shape), {Initializer::kZeros},
                              static_cast<TensorRole>(declared.role()), declared.type()));
    ++model_.layers_.back().tensor_count;
    model_.layers_.back().elements += model_.tensors_.back().size;
    return absl::OkStatus();
  }

  static std::string LayerOf(const std::string& tensor) {
    const size_t end = tensor.find_last_of("./");
    return end == std::string::npos ? tensor : tensor.substr(0, end);
  }

  // Divides the size of every tensor by `factor` and lays the tensors out again.
  absl::Status Shrink(int64_t factor) {
    const Tensor& smallest =
        *std::min_element(model_.tensors_.begin(), model_.tensors_.end(),
                          [](const Tensor& a, const Tensor& b) { return a.size < b.size; });
    if (factor < 1 || factor > smallest.size) {
      return absl::InvalidArgumentError(
          absl::StrCat("shrink: is ", factor, ", allowed: 1 to ", smallest.size,
                       ", the elements of the smallest tensor, ", smallest.name));
    }
    if (factor == 1) return absl::OkStatus();
    const std::vector<Tensor> full = std::exchange(model_.tensors_, {});
    model_.parameter_count_ = 0;
    model_.element_count_ = 0;
    model_.buffer_size_ = model_.parameter_bytes_ = model_.gradient_bytes_ = 0;
    for (const Tensor& tensor : full) {
      RETURN_IF_ERROR(
          AddTensor(tensor.name, {tensor.size / factor}, tensor.initializer, tensor.role));
    }
    for (Layer& layer : model_.layers_) CountElements(&layer);
    return absl::OkStatus();
  }

  void CountElements(Layer* layer) const {
    layer->elements = 0;
    for (int i = 0; i < layer->tensor_count; ++i) {
      layer->elements += model_.tensors_[layer->first_tensor + i].size;
    }
  }

  absl::Status SetInput(const ImageShape& input) {
    absl::Status status = CheckPositive({{"input.channels", input.channels()},
                                         {"input.height", input.height()},
                                         {"input.width", input.width()}});
    model_.input_ = {input.channels(), input.height(), input.width()};
    return status.ok() ? CheckActivation(model_.input_) : status;
  }

  static absl::Status CheckActivation(const Shape3& shape) {
    if (LimitedProduct({shape.channels, shape.height, shape.width}, kMaxActivation) > 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("an activation of ", shape.ToString(),
                                                   " is too large, allowed are ", kMaxActivation,
                                                   " elements"));
  }

  static std::string Path(const std::string& list, int index) {
    return absl::StrCat(list, "[", index, "]");
  }

  // Names are collected before any layer is added, so that no generated name takes a given one.
  absl::Status CollectNames(const LayerSpecs& layers, const std::string& path) {
    for (int i = 0; i < layers.size(); ++i) {
      const LayerSpec& spec = layers[i];
      const std::string where = Path(path, i);
      if (spec.kind_case() == LayerSpec::KIND_NOT_SET) {
        std::vector<absl::string_view> kinds;
        const auto* kind = LayerSpec::descriptor()->FindOneofByName("kind");
        for (int k = 0; k < kind->field_count(); ++k) kinds.push_back(kind->field(k)->name());
        return absl::InvalidArgumentError(absl::StrCat(where, " \"", spec.name(),
                                                       "\": its kind is missing, allowed are ",
                                                       absl::StrJoin(kinds, ", ")));
      }
      if (spec.name().empty() && HasParameters(spec)) {
        return absl::InvalidArgumentError(absl::StrCat(
            where, ": a ", KindName(spec), " layer has parameters and needs a name for them"));
      }
      if (absl::string_view(spec.name()).find('/') != absl::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, " \"", spec.name(),
                         "\": a layer's name must not contain '/', which ends it in the names of "
                         "its tensors"));
      }
      if (!spec.name().empty() && !names_.insert(spec.name()).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, ": the name \"", spec.name(),
                         "\" is taken by an earlier layer, names must be unique"));
      }
      for (const auto& [list, name] :
           {std::pair(&spec.residual().body(), ".residual.body"),
            std::pair(&spec.residual().shortcut(), ".residual.shortcut")}) {
        RETURN_IF_ERROR(CollectNames(*list, where + name));
      }
    }
    return absl::OkStatus();
  }

  std::string NameOf(const LayerSpec& spec) {
    if (!spec.name().empty()) return spec.name();
    std::string name;
    for (int i = 1; name.empty() || !names_.insert(name).second; ++i) {
      name = absl::StrCat(KindName(spec), i);
    }
    return name;
  }

  // Adds layers, each of which reads the one before it, and returns the output of the last.
  absl::StatusOr<Source> AddLayers(const LayerSpecs& layers, const std::string& path,
                                   Source input) {
    for (int i = 0; i < layers.size(); ++i) {
      const LayerSpec& spec = layers[i];
      const std::string name = NameOf(spec);
      const std::string where = Path(path, i);
      ASSIGN_OR_RETURN(input, spec.has_residual() ? AddResidual(spec, where, name, input)
                                                  : AddLayer(spec, where, name, input));
    }
    return input;
  }

  absl::StatusOr<Source> AddResidual(const LayerSpec& spec, const std::string& where,
                                     const std::string& name, const Source& input) {
    const Residual& residual = spec.residual();
    const std::string here = absl::StrCat(where, " \"", name, "\": ");
    if (residual.body().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(here, "residual.body has no layers, it needs at least one"));
    }
    ASSIGN_OR_RETURN(const Source body,
                     AddLayers(residual.body(), where + ".residual.body", input));
    ASSIGN_OR_RETURN(const Source shortcut,
                     AddLayers(residual.shortcut(), where + ".residual.shortcut", input));
    if (body.shape != shortcut.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          here, "residual.body gives ", body.shape.ToString(), ", but residual.shortcut gives ",
          shortcut.shape.ToString(), "; they are added and must be equal"));
    }
    Layer end;
    end.name = name;
    end.spec.set_name(name);
    end.spec.mutable_residual();  // its layers have been added before it
    end.inputs = {body.layer, shortcut.layer};
    end.input = end.output = body.shape;
    end.first_tensor = static_cast<int>(model_.tensors_.size());
    return Add(std::move(end));
  }

  absl::StatusOr<Source> AddLayer(const LayerSpec& spec, const std::string& where,
                                  const std::string& name, const Source& input) {
    Layer layer;
    layer.name = name;
    layer.spec = spec;
    layer.inputs = {input.layer};
    layer.input = input.shape;
    layer.first_tensor = static_cast<int>(model_.tensors_.size());
    absl::StatusOr<Shape3> output = AddKind(spec, name, input.shape);
    absl::Status status = output.status();
    if (status.ok()) status = CheckActivation(*output);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(where, " \"", name, "\": ", status.message()));
    }
    layer.output = *output;
    layer.tensor_count = static_cast<int>(model_.tensors_.size()) - layer.first_tensor;
    CountElements(&layer);
    return Add(std::move(layer));
  }

  Source Add(Layer layer) {
    model_.layers_.push_back(std::move(layer));
    return {static_cast<int>(model_.layers_.size()) - 1, model_.layers_.back().output};
  }

  // Adds the tensors of one layer and returns the shape of its output.
  absl::StatusOr<Shape3> AddKind(const LayerSpec& spec, const std::string& name,
                                 const Shape3& input) {
    switch (spec.kind_case()) {
      case LayerSpec::kConv: {
        const Conv2d& conv = spec.conv();
        RETURN_IF_ERROR(CheckPositive({{"conv.out_channels", conv.out_channels()},
                                       {"conv.kernel", conv.kernel()},
                                       {"conv.stride", conv.stride()}}));
        RETURN_IF_ERROR(CheckPadding("conv.padding", conv.padding(), conv.kernel() - 1));
        ASSIGN_OR_RETURN(const Shape3 output, Windowed(input, conv.out_channels(), conv.kernel(),
                                                       conv.stride(), conv.padding()));
        RETURN_IF_ERROR(
            AddWeights(name, {conv.out_channels(), input.channels, conv.kernel(), conv.kernel()},
                       conv.bias(), initializers_.conv));
        return output;
      }
      case LayerSpec::kLinear: {
        const Linear& linear = spec.linear();
        RETURN_IF_ERROR(CheckPositive({{"linear.out_features", linear.out_features()}}));
        RETURN_IF_ERROR(AddWeights(name, {linear.out_features(), input.size()}, linear.bias(),
                                   initializers_.linear));
        return Shape3{linear.out_features(), 1, 1};
      }
      case LayerSpec::kMaxPool: {
        const MaxPool2d& pool = spec.max_pool();
        const int64_t stride = pool.has_stride() ? pool.stride() : pool.kernel();
        RETURN_IF_ERROR(
            CheckPositive({{"max_pool.kernel", pool.kernel()}, {"max_pool.stride", stride}}));
        // With more padding, some windows would contain nothing else.
        RETURN_IF_ERROR(CheckPadding("max_pool.padding", pool.padding(), pool.kernel() / 2));
        return Windowed(input, input.channels, pool.kernel(), stride, pool.padding());
      }
      case LayerSpec::kDropout: {
        const float p = spec.dropout().p();
        if (!(p >= 0 && p < 1)) {  // refuses NaN too
          return absl::InvalidArgumentError(
              absl::StrCat("dropout.p is ", p, ", allowed is 0 to below 1"));
        }
        return input;
      }
      case LayerSpec::kBatchNorm: {
        const BatchNorm2d& norm = spec.batch_norm();
        // The conditions are negated so that NaN is refused.
        if (!(norm.epsilon() > 0) || !std::isfinite(norm.epsilon())) {
          return absl::InvalidArgumentError(
              absl::StrCat("batch_norm.epsilon is ", norm.epsilon(), ", allowed is above 0"));
        }
        if (!(norm.momentum() > 0 && norm.momentum() <= 1)) {
          return absl::InvalidArgumentError(absl::StrCat("batch_norm.momentum is ", norm.momentum(),
                                                         ", allowed is above 0, to 1"));
        }
        for (const auto& [tensor, initializer, role] :
             {std::tuple("/weight", Initializer::kOnes, TensorRole::kParameter),
              std::tuple("/bias", Initializer::kZeros, TensorRole::kParameter),
              std::tuple("/running_mean", Initializer::kZeros, TensorRole::kRunningStatistic),
              std::tuple("/running_var", Initializer::kOnes, TensorRole::kRunningStatistic)}) {
          RETURN_IF_ERROR(AddTensor(name + tensor, {input.channels}, {initializer}, role));
        }
        return input;
      }
      case LayerSpec::kGlobalAvgPool:
        return Shape3{input.channels, 1, 1};
      case LayerSpec::kRelu:
        return input;
      case LayerSpec::kResidual:     // added by AddResidual
      case LayerSpec::KIND_NOT_SET:  // refused by CollectNames
        break;
    }
    return absl::InternalError(absl::StrCat("no layer of kind ", spec.kind_case()));
  }

  absl::Status AddWeights(const std::string& name, const std::vector<int64_t>& shape, bool bias,
                          LayerInitializer rule) {
    const int64_t outputs = shape[0];
    const auto fan_in = static_cast<double>(
        LimitedProduct(std::vector<int64_t>(shape.begin() + 1, shape.end()), kMaxElements));
    const double outputs_per_input = static_cast<double>(outputs) / static_cast<double>(shape[1]);
    const auto [weights, biases] = InitializersOf(rule, fan_in, fan_in * outputs_per_input);
    absl::Status status = AddTensor(name + "/weight", shape, weights);
    if (!status.ok() || !bias) return status;
    return AddTensor(name + "/bias", {outputs}, biases);
  }

  absl::Status AddTensor(std::string name, std::vector<int64_t> shape, Initializer initializer,
                         TensorRole role = TensorRole::kParameter, Encoding type = FLOAT32) {
    Tensor tensor;
    tensor.size = LimitedProduct(shape, kMaxElements - model_.element_count_);
    if (tensor.size < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "with ", name, " [", absl::StrJoin(shape, ", "), "] the model has more than ",
          kMaxElements, " parameters, the most allowed"));
    }
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.offset = model_.buffer_size_;
    tensor.initializer = initializer;
    tensor.role = role;
    tensor.type = type;
    tensor.parameters_begin = model_.parameter_bytes_;
    tensor.gradient_begin = model_.gradient_bytes_;
    if (role == TensorRole::kParameter) model_.parameter_count_ += tensor.size;
    model_.element_count_ += tensor.size;
    model_.buffer_size_ += RoundUp(tensor.size, kAlignment);
    model_.parameter_bytes_ += RoundUp(EncodedBytes(type, tensor.size), kAlignmentBytes);
    model_.gradient_bytes_ +=
        RoundUp(EncodedBytes(tensor.gradient_type(), tensor.size), kAlignmentBytes);
    model_.tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  const LayerInitializers initializers_;
  Model model_;
  std::set<std::string> names_;  // given and generated names of all layers
};

absl::StatusOr<Model> Model::Create(const ModelSpec& spec) {
  if (spec.has_from_workers()) return ModelBuilder().BuildDeclared(spec.from_workers());
  LayerInitializers initializers;
  const bool he_uniform = spec.initial_values() == ModelSpec::HE_UNIFORM;
  if (he_uniform) initializers = {LayerInitializer::kHeUniform, LayerInitializer::kHeUniform};
  if (!spec.has_builtin()) return ModelBuilder(initializers).Build(spec, spec.shrink(), "custom");
  if (spec.has_input() || spec.layer_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("builtin: \"", spec.builtin(),
                     "\" has its own input and layers; give either `builtin` or `input` and "
                     "`layer`"));
  }
  ASSIGN_OR_RETURN(const BuiltinSpec builtin, BuiltinModel(spec.builtin()));
  if (!he_uniform) initializers = builtin.initializers;
  return ModelBuilder(initializers).Build(builtin.spec, spec.shrink(), spec.builtin());
}

Model::Range Model::RangeOf(const Layer& layer) const {
  const Tensor& first = tensors_[layer.first_tensor];
  const Tensor& last = tensors_[layer.first_tensor + layer.tensor_count - 1];
  return {first.offset, last.offset + last.size - first.offset};
}

absl::Status CheckBatchSize(const Model& model, int64_t batch_size) {
  for (const Layer& layer : model.layers()) {
    if (!layer.spec.has_batch_norm() || batch_size * layer.input.height * layer.input.width > 1) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("is ", batch_size, ", but the batch normalisation ", layer.name,
                     " of the model ", model.name(), ", whose input is ", layer.input.ToString(),
                     ", needs several values per channel, allowed: at least 2"));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
