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

std::string Text(const DeclaredTensor& tensor) {
  return absl::StrCat(tensor.name(), " [", absl::StrJoin(tensor.shape(), ", "), "]",
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
  const std::string own = declaration.optimizer().ShortDebugString();
  const std::string theirs = other.optimizer().ShortDebugString();
  return own == theirs ? ""
                       : absl::StrCat("the optimizer is {", own, "}, and {", theirs, "} there");
}

Declaration DeclarationOf(const ClusterConfig& config, bool with_optimizer) {
  Declaration declaration;
  *declaration.mutable_model() = config.model().from_workers();
  if (with_optimizer) *declaration.mutable_optimizer() = config.optimizer();
  return declaration;
}

}  // namespace evenshard
