#ifndef EVENSHARD_COMMON_CHECKPOINT_INITIAL_PARAMETERS_H_
#define EVENSHARD_COMMON_CHECKPOINT_INITIAL_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// The values that a run begins from: those of the file model.initial_parameters, or else those of
// common/placement/model/initializer.h. Immutable and thread-safe.
class InitialParameters {
 public:
  // Opens the file, if the config names one, and checks that it fits the model: every tensor of the
  // model is in it, running statistics too, with the same shape, as F32, F16 or BF16; and nothing
  // else is. `storage` may be used as long as this lives; `config` must outlive this.
  // Errors: INVALID_ARGUMENT with the place in the config, naming at most 10 tensors of each kind
  // of difference.
  static absl::StatusOr<std::unique_ptr<const InitialParameters>> Open(Storage* storage,
                                                                       const PlannedConfig& config);

  // Writes elements [begin, begin + out.size()) of a tensor of the model to `out`.
  // Errors: INVALID_ARGUMENT, naming the element, if the file has a NaN or an infinity there; those
  // of Storage.
  absl::Status Fill(int tensor, int64_t begin, absl::Span<float> out) const;

 private:
  explicit InitialParameters(const PlannedConfig& config) : config_(config) {}

  // Sets stored_ by tensor of the model.
  absl::Status Match(std::vector<StoredTensor> tensors);
  absl::Status Error(absl::string_view problem) const;

  const PlannedConfig& config_;
  std::unique_ptr<const ReadableFile> file_;         // null if the config names none
  std::vector<std::optional<StoredTensor>> stored_;  // by tensor; absent if the file lacks it
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_INITIAL_PARAMETERS_H_
