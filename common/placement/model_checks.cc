#include "common/placement/model_checks.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/text.h"
#include "common/config/config_validation.h"
#include "common/config/optimizer_rules.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/rule_matching.h"

namespace evenshard {
namespace {

using LayerSpecs = google::protobuf::RepeatedPtrField<LayerSpec>;

const Shape3 kCifar10Shape = {3, 32, 32};
constexpr int64_t kCifar10Classes = 10;
constexpr int kMaxJpegSize = 65500;  // libjpeg's limit for each side, in pixels
// The most parameters that an error names.
constexpr size_t kNamed = 6;

bool IsEmulated(const ClusterConfig& config) {
  return config.compute().backend() == Compute::EMULATED;
}

bool MatchesParameter(const std::string& pattern, const Model& model) {
  return std::any_of(model.tensors().begin(), model.tensors().end(), [&](const Tensor& tensor) {
    return tensor.role == TensorRole::kParameter && MatchesPattern(pattern, tensor.name);
  });
}

// Returns the first names of the model's parameters, "fc1/weight, fc1/bias and 4 more".
std::string ParameterNames(const Model& model) {
  std::vector<std::string> names;
  int more = 0;
  for (const Tensor& tensor : model.tensors()) {
    if (tensor.role != TensorRole::kParameter) continue;
    if (names.size() < kNamed) {
      names.push_back(Printable(tensor.name));
    } else {
      ++more;
    }
  }
  std::string text = absl::StrJoin(names, ", ");
  if (more > 0) absl::StrAppend(&text, " and ", more, " more");
  return text;
}

void SetStrides(LayerSpecs* layers) {
  for (LayerSpec& layer : *layers) {
    if (layer.has_max_pool() && !layer.max_pool().has_stride()) {
      layer.mutable_max_pool()->set_stride(layer.max_pool().kernel());
    }
    if (layer.has_residual()) {
      SetStrides(layer.mutable_residual()->mutable_body());
      SetStrides(layer.mutable_residual()->mutable_shortcut());
    }
  }
}

}  // namespace

void CheckProfile(const ClusterConfig& config, FieldProblems* problems) {
  const Compute& compute = config.compute();
  ValidateUse(compute.has_profile(), compute.backend() != Compute::EMULATED, "compute.profile",
              "compute.backend", "EMULATED, which has compute.emulated.device", "CPU and CUDA",
              problems);
  ValidateUse(compute.has_profile(), !compute.has_pace(), "compute.profile", "compute.pace",
              "compute.pace, which has a device", "CPU and CUDA without it", problems);
  if (config.partition().scheme() == Partition::AUTO && compute.backend() != Compute::EMULATED &&
      !compute.has_profile() && !compute.has_pace()) {
    problems->Add(
        "compute.profile",
        absl::StrCat("is missing with partition.scheme AUTO, which goes by the times of a "
                     "device's layers, and those of the backend ",
                     Compute::Backend_Name(compute.backend()),
                     " are not known, allowed: ", KnownDevices()),
        {"partition.scheme", "compute.backend"});
  }
}

void CheckModelBytes(const Limits& limits, const Model& model, FieldProblems* problems) {
  const int64_t bytes = model.element_count() * static_cast<int64_t>(sizeof(float));
  if (bytes <= limits.model_bytes()) return;
  problems->Add("limits.model_bytes",
                absl::StrCat("is ", limits.model_bytes(), ", and the workers bring a model of ",
                             bytes, " bytes, allowed: at least that, or a smaller model"),
                {"model.from_workers"});
}

void CheckCompute(const ClusterConfig& config, const Model& model, FieldProblems* problems) {
  if (IsEmulated(config)) {
    const absl::Status times = LayerTimes(model, config.compute().emulated(), 1).status();
    if (!times.ok()) problems->Add("compute.emulated.device", times.message());
    return;
  }
  if (config.model().shrink() != 1) {
    problems->Add("model.shrink",
                  absl::StrCat("is ", config.model().shrink(),
                               " with backend CPU, which needs whole tensors, allowed: 1, or "
                               "compute.backend EMULATED"),
                  {"compute.backend"});
  }
  if (config.compute().has_profile() || config.compute().has_pace()) {
    const absl::Status times = PredictedLayerTimes(model, config).status();
    const char* const field =
        config.compute().has_pace() ? "compute.pace.device" : "compute.profile";
    if (!times.ok()) problems->Add(field, times.message());
  }
  const absl::Status batch = CheckBatchSize(model, config.training().batch_size());
  if (!batch.ok()) problems->Add("training.batch_size", batch.message(), {"model"});
}

void CheckData(const ClusterConfig& config, const Model& model, FieldProblems* problems) {
  const Data& data = config.data();
  const Shape3& input = model.input();
  const auto require_input = [&](bool ok, absl::string_view field, absl::string_view images) {
    if (ok) return;
    problems->Add(
        field,
        absl::StrCat("its images are ", images, ", but the input of the model ", model.name(),
                     " is ", input.ToString(), ", allowed: a model with such an input"),
        {"model"});
  };

  if (data.has_idx()) require_input(input.channels == 1, "data.idx", "of one channel");
  if (data.has_cifar10()) {
    require_input(input == kCifar10Shape, "data.cifar10", kCifar10Shape.ToString());
    if (model.classes() < kCifar10Classes) {
      problems->Add(
          "data.cifar10",
          absl::StrCat("has ", kCifar10Classes, " classes, but the model ", model.name(), " has ",
                       model.classes(), ", allowed: a model with at least as many"),
          {"model"});
    }
  }
  if (data.has_image_folder()) {
    require_input(input.channels == 3, "data.image_folder", "of three channels");
    const int64_t size = std::min(input.height, input.width);
    if (data.image_folder().has_resize()) {
      problems->RequireRange<int64_t>("data.image_folder.resize", data.image_folder().resize(),
                                      size, kMaxJpegSize);
    }
  }
  if (data.has_synthetic()) {
    const ImageShape& shape = data.synthetic().shape();
    const Shape3 given = {shape.channels(), shape.height(), shape.width()};
    require_input(!data.synthetic().has_shape() || given == input, "data.synthetic.shape",
                  given.ToString());
    if (data.synthetic().has_classes()) {
      const int64_t classes = data.synthetic().classes();
      problems->Require(
          classes >= 1 && classes <= model.classes(), "data.synthetic.classes", classes,
          absl::StrCat("1 to the ", model.classes(), " classes of the model ", model.name()),
          {"model"});
    }
  }
  const int64_t smaller = std::min(input.height, input.width);
  problems->Require(data.augment().crop_padding() < smaller, "data.augment.crop_padding",
                    data.augment().crop_padding(),
                    absl::StrCat("below the ", smaller, " pixels of the model's input"), {"model"});
}

void CheckOptimizer(const OptimizerConfig& optimizer, absl::string_view path, const Model& model,
                    FieldProblems* problems) {
  std::vector<bool> matches(optimizer.rule_size()), counts(optimizer.rule_size());
  for (const Tensor& tensor : model.tensors()) {
    for (int i = 0; i < optimizer.rule_size(); ++i) {
      if (MatchesRule(optimizer.rule(i), tensor)) matches[i] = true;
    }
    if (const int rule = RuleOf(optimizer, tensor); rule != kNoRule) counts[rule] = true;
  }
  for (int i = 0; i < optimizer.rule_size(); ++i) {
    for (int k = 0; k < optimizer.rule(i).tensors_size(); ++k) {
      const std::string& pattern = optimizer.rule(i).tensors(k);
      if (pattern.empty() || MatchesParameter(pattern, model)) continue;
      problems->Add(
          PatternPath(path, i, k),
          absl::StrCat("is \"", Printable(pattern), "\", which matches no parameter of the model ",
                       model.name(), ", allowed: a pattern for names like ", ParameterNames(model)),
          {"model"});
    }
    if (matches[i] && !counts[i]) {
      problems->Add(RulePath(path, i),
                    "has no effect, because earlier rules match all tensors that it matches, and "
                    "the first one counts, allowed: narrow patterns before wide ones",
                    {"model", absl::StrCat(path, ".rule")});
    }
  }
}

void CheckFragments(const LocalSteps& local, const Model& model, FieldProblems* problems) {
  const auto layers = std::count_if(model.layers().begin(), model.layers().end(),
                                    [](const Layer& layer) { return layer.tensor_count > 0; });
  problems->Require(local.fragments() <= layers, "local.fragments", local.fragments(),
                    absl::StrCat("at most ", layers, ", the layers of the model ", model.name(),
                                 " with parameters, or some fragments would never be exchanged"),
                    {"model"});
}

void CheckUpdateEncoding(const ExchangeConfig& exchange, const Model& model,
                         FieldProblems* problems) {
  if (!exchange.has_update_encoding()) return;
  for (const Tensor& tensor : model.tensors()) {
    if (tensor.type == FLOAT32) continue;
    problems->Add(
        "exchange.update_encoding",
        absl::StrCat("is ", Encoding_Name(exchange.update_encoding()), ", and ", tensor.name,
                     " is ", Encoding_Name(tensor.type), ", allowed: with models of FLOAT32"),
        {"model"});
    return;
  }
}

void SetModelDefaults(const Model& model, ClusterConfig* config) {
  SetStrides(config->mutable_model()->mutable_layer());
  const Shape3& input = model.input();
  if (config->data().has_synthetic()) {
    Data::Synthetic* synthetic = config->mutable_data()->mutable_synthetic();
    if (!synthetic->has_shape()) {
      synthetic->mutable_shape()->set_channels(input.channels);
      synthetic->mutable_shape()->set_height(input.height);
      synthetic->mutable_shape()->set_width(input.width);
    }
    if (!synthetic->has_classes()) synthetic->set_classes(model.classes());
  }
  if (config->data().has_image_folder()) {
    Data::ImageFolder* folder = config->mutable_data()->mutable_image_folder();
    if (!folder->has_resize()) folder->set_resize(std::min(input.height, input.width) * 256 / 224);
  }
}

}  // namespace evenshard
