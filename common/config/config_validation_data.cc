#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/config_contract.h"
#include "common/config/config_validation.h"

namespace evenshard {
namespace {

constexpr int kMaxBatchSize = 65536;
constexpr int kMaxThreads = 256;
// Images are numbered with 32-bit integers.
constexpr int64_t kMaxImages = std::numeric_limits<int32_t>::max();

bool HasTestSet(const Data& data) {
  return data.idx().has_test_images() || data.has_cifar10() || data.image_folder().has_test_path();
}

bool IsEmulated(const ClusterConfig& config) {
  return config.compute().backend() == Compute::EMULATED;
}

// Returns whether the run has images to measure an accuracy on.
bool CanEvaluate(const ClusterConfig& config) {
  return !IsEmulated(config) && (config.data().holdout() > 0 || HasTestSet(config.data()));
}

void RequirePath(const std::string& path, absl::string_view field, FieldProblems* problems) {
  if (path.empty()) problems->Add(field, "is missing, allowed: a path, relative to this file");
}

void ValidateIdx(const Data::Idx& idx, FieldProblems* problems) {
  RequirePath(idx.images(), "data.idx.images", problems);
  RequirePath(idx.labels(), "data.idx.labels", problems);
  if (!idx.has_test_images() && !idx.has_test_labels()) return;
  RequirePath(idx.test_images(), "data.idx.test_images", problems);
  RequirePath(idx.test_labels(), "data.idx.test_labels", problems);
}

void ValidateSynthetic(const ClusterConfig& config, FieldProblems* problems) {
  const Data::Synthetic& synthetic = config.data().synthetic();
  problems->RequireRange<int64_t>("data.synthetic.images", synthetic.images(), 1, kMaxImages);
  const int64_t batches = int64_t{config.workers()} * config.training().batch_size();
  problems->Require(IsEmulated(config) || synthetic.images() >= batches, "data.synthetic.images",
                    synthetic.images(),
                    absl::StrCat("at least one batch for each worker, ", batches),
                    {"workers", "training.batch_size"});
  problems->Require(std::isfinite(synthetic.noise()) && synthetic.noise() >= 0,
                    "data.synthetic.noise", synthetic.noise(), "a number of at least 0");
}

}  // namespace

void ValidateTraining(const ClusterConfig& config, FieldProblems* problems) {
  const Training& training = config.training();
  problems->RequireRange("training.batch_size", training.batch_size(), 1, kMaxBatchSize);

  switch (training.length_case()) {
    case Training::kEpochs:
      problems->Require(training.epochs() >= 1, "training.epochs", training.epochs(), "at least 1");
      if (IsEmulated(config)) {
        problems->Add("training.epochs",
                      "is set with backend EMULATED, which reads no data, allowed: "
                      "training.iterations in its place",
                      {"compute.backend"});
      }
      break;
    case Training::kIterations:
      problems->Require(training.iterations() >= 1, "training.iterations", training.iterations(),
                        "at least 1");
      break;
    case Training::LENGTH_NOT_SET:
      problems->Add("training", "has neither epochs nor iterations, allowed: one of the two");
  }

  const float accuracy = training.required_accuracy();
  problems->Require(accuracy >= 0 && accuracy < 1, "training.required_accuracy", accuracy,
                    "at least 0 and below 1");
  const std::pair<const char*, int64_t> evaluations[] = {
      {"training.evaluate_every_epochs", training.evaluate_every_epochs()},
      {"training.evaluate_every_iterations", training.evaluate_every_iterations()}};
  for (const auto& [field, every] : evaluations) {
    problems->Require(every >= 0, field, every, "at least 0");
  }
  if (CanEvaluate(config)) return;
  constexpr char kNothing[] =
      "but there is nothing to evaluate on, allowed: only with data.holdout or a test set, and "
      "not with backend EMULATED";
  if (accuracy > 0) {
    problems->Add("training.required_accuracy", absl::StrCat("is ", accuracy, ", ", kNothing),
                  {"compute.backend", "data"});
  }
  for (const auto& [field, every] : evaluations) {
    if (every > 0) {
      problems->Add(field, absl::StrCat("is ", every, ", ", kNothing), {"compute.backend", "data"});
    }
  }
}

void ValidateData(const ClusterConfig& config, FieldProblems* problems) {
  const Data& data = config.data();
  switch (data.source_case()) {
    case Data::kIdx:
      ValidateIdx(data.idx(), problems);
      break;
    case Data::kCifar10:
      RequirePath(data.cifar10().path(), "data.cifar10.path", problems);
      break;
    case Data::kImageFolder:
      RequirePath(data.image_folder().path(), "data.image_folder.path", problems);
      if (data.image_folder().has_test_path()) {
        RequirePath(data.image_folder().test_path(), "data.image_folder.test_path", problems);
      }
      break;
    case Data::kSynthetic:
      ValidateSynthetic(config, problems);
      break;
    case Data::SOURCE_NOT_SET:
      if (!IsEmulated(config)) {
        problems->Add("data",
                      "its source is missing, allowed: idx, cifar10, image_folder or synthetic; "
                      "none with compute.backend EMULATED",
                      {"compute.backend"});
      }
  }
  problems->Require(data.holdout() >= 0 && data.holdout() < 1, "data.holdout", data.holdout(),
                    "at least 0 and below 1");
  if (data.holdout() > 0 && HasTestSet(data)) {
    problems->Add("data.holdout",
                  absl::StrCat("is ", data.holdout(), ", but the data has a test set, allowed: 0"),
                  {"data"});
  }
  problems->Require(data.augment().crop_padding() >= 0, "data.augment.crop_padding",
                    data.augment().crop_padding(), "at least 0");
  problems->RequireRange("data.threads", data.threads(), 0, kMaxThreads);
}

void ValidateFromWorkers(const ClusterConfig& config, FieldProblems* problems) {
  const ModelSpec& model = config.model();
  const auto refuse = [problems](bool is_set, const char* field, const char* who) {
    if (!is_set) return;
    problems->Add(
        field,
        absl::StrCat("has no effect with model.from_workers, where ", who, ", allowed: without it"),
        {"model.from_workers"});
  };
  constexpr char kWorkers[] = "the workers bring the model";
  refuse(model.has_builtin(), "model.builtin", kWorkers);
  refuse(model.has_input(), "model.input", kWorkers);
  refuse(model.layer_size() > 0, "model.layer", kWorkers);
  refuse(model.has_shrink(), "model.shrink", kWorkers);
  constexpr char kParameters[] = "worker 0 gives the initial parameters";
  refuse(model.has_initial_parameters(), "model.initial_parameters", kParameters);
  refuse(model.has_initial_values(), "model.initial_values", kParameters);
  constexpr char kPrograms[] = "the workers' own program trains";
  refuse(config.has_training(), "training", kPrograms);
  refuse(config.has_data(), "data", kPrograms);
  refuse(config.has_compute(), "compute", kPrograms);
  const Update& update = config.update();
  problems->Require(
      !IsAsynchronous(update) || update.clip_global_norm() == 0, "update.clip_global_norm",
      update.clip_global_norm(),
      "0 with ASYNC or SSP and model.from_workers: each push is an update by itself, and the"
      " workers' own program clips it, with the schedule SEQUENTIAL",
      {"update.policy"});
}

void ValidateInitialParameters(const ModelSpec& model, FieldProblems* problems) {
  if (model.has_initial_parameters()) {
    RequirePath(model.initial_parameters(), "model.initial_parameters", problems);
    ValidateUse(model.has_initial_values(), model.allow_missing_parameters(),
                "model.initial_values", "model.initial_parameters", "model.initial_parameters",
                "model.allow_missing_parameters", problems);
    return;
  }
  const auto refuse = [problems](bool is_set, const char* field) {
    ValidateUse(is_set, false, field, "model", "the model's own initial values",
                "model.initial_parameters", problems);
  };
  refuse(model.has_allow_missing_parameters(), "model.allow_missing_parameters");
  refuse(model.has_allow_unused_parameters(), "model.allow_unused_parameters");
}

}  // namespace evenshard
