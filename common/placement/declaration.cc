#include "common/placement/declaration.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace evenshard {
namespace {

absl::string_view RoleText(DeclaredTensor::Role role) {
  switch (role) {
    case DeclaredTensor::PARAMETER:
      return "";
    case DeclaredTensor::RUNNING_STATISTIC:
      return ", a running statistic";
    case DeclaredTensor::BUFFER:
      return ", not trained";
  }
  return "";
}

Declaration ClippingOf(Declaration declaration) {
  declaration.clear_model();
  declaration.clear_optimizer();
  declaration.clear_local();
  return declaration;
}

std::string TextDifference(absl::string_view what, const google::protobuf::Message& own,
                           const google::protobuf::Message& other) {
  const std::string text = own.ShortDebugString();
  const std::string theirs = other.ShortDebugString();
  return text == theirs ? ""
                        : absl::StrCat("the ", what, " is {", text, "}, and {", theirs, "} there");
}

std::string Text(const DeclaredTensor& tensor) {
  return absl::StrCat(tensor.name(), " [", absl::StrJoin(tensor.shape(), ", "), "]",
                      tensor.type() == FLOAT32 ? "" : " of " + Encoding_Name(tensor.type()),
                      RoleText(tensor.role()),
                      tensor.has_layer() ? absl::StrCat(", of layer ", tensor.layer()) : "");
}

}  // namespace

std::string DeclaredDifference(const FromWorkers& model, const FromWorkers& other) {
  const int common = std::min(model.tensor_size(), other.tensor_size());
  for (int i = 0; i < common; ++i) {
    const std::string own = Text(model.tensor(i));
    const std::string theirs = Text(other.tensor(i));
    if (own != theirs) return absl::StrCat("tensor ", i, " is ", own, ", and ", theirs, " there");
  }
  if (model.tensor_size() == other.tensor_size()) return "";
  const bool has_more = model.tensor_size() > common;
  return absl::StrCat("it has ", model.tensor_size(), " tensors, and ", other.tensor_size(),
                      " there: ", Text((has_more ? model : other).tensor(common)),
                      has_more ? " is missing there" : " is missing here");
}

std::string DeclarationDifference(const Declaration& declaration, const Declaration& other) {
  const std::string model = DeclaredDifference(declaration.model(), other.model());
  if (!model.empty()) return model;
  const std::string optimizer =
      TextDifference("optimizer", declaration.optimizer(), other.optimizer());
  if (!optimizer.empty()) return optimizer;
  const std::string local = TextDifference("local", declaration.local(), other.local());
  if (!local.empty()) return local;
  return TextDifference("clipping", ClippingOf(declaration), ClippingOf(other));
}

Declaration DeclarationOf(const ClusterConfig& whole, const ClusterConfig& file) {
  Declaration declaration;
  *declaration.mutable_model() = whole.model().from_workers();
  if (!file.has_optimizer() && whole.has_optimizer()) {
    *declaration.mutable_optimizer() = whole.optimizer();
  }
  if (!file.has_local() && whole.has_local()) *declaration.mutable_local() = whole.local();
  const Update& update = whole.update();
  if (file.update().clip_value() == 0 && update.clip_value() != 0) {
    declaration.set_clip_value(update.clip_value());
  }
  if (file.update().clip_global_norm() == 0 && update.clip_global_norm() != 0) {
    declaration.set_clip_global_norm(update.clip_global_norm());
  }
  return declaration;
}

}  // namespace evenshard
