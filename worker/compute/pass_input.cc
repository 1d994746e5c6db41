#include "worker/compute/pass_input.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace evenshard {
namespace {

absl::Status CheckBuffer(absl::string_view what, size_t floats, const Model& model) {
  if (static_cast<int64_t>(floats) == model.buffer_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " buffer has ", floats,
                                                 " floats, the model ", model.name(), " needs ",
                                                 model.buffer_size()));
}

bool HasBatchNorm(const Model& model) {
  return std::any_of(model.layers().begin(), model.layers().end(),
                     [](const Layer& layer) { return layer.spec.has_batch_norm(); });
}

}  // namespace

absl::Status CheckEvaluation(const Model& model, int64_t batch_size, const Batch& batch,
                             size_t parameter_floats) {
  if (batch.size < 1 || batch.size > batch_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.size, " images: the backend was made for 1 to ", batch_size));
  }
  if (static_cast<int64_t>(batch.images.size()) != batch.size * model.input().size() ||
      static_cast<int64_t>(batch.labels.size()) != batch.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.size, " images of ", model.input().ToString(), " comes with ",
        batch.images.size(), " floats and ", batch.labels.size(), " labels"));
  }
  for (int64_t i = 0; i < batch.size; ++i) {
    if (batch.labels[i] >= 0 && batch.labels[i] < model.classes()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the label of image ", i, " in the batch is ",
                                                   batch.labels[i], ", allowed are 0 to ",
                                                   model.classes() - 1));
  }
  return CheckBuffer("parameter", parameter_floats, model);
}

absl::Status CheckTraining(const Model& model, int64_t batch_size, const Batch& batch,
                           size_t parameter_floats, size_t gradient_floats) {
  absl::Status status = CheckEvaluation(model, batch_size, batch, parameter_floats);
  if (status.ok()) status = CheckBuffer("gradient", gradient_floats, model);
  // Batch statistics would include the empty images that fill up a smaller batch.
  if (status.ok() && batch.size < batch_size && HasBatchNorm(model)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.size, " images: the model ", model.name(),
                     " has batch normalisation, and is trained on whole batches of ", batch_size));
  }
  return status;
}

}  // namespace evenshard
