#ifndef EVENSHARD_COMMON_CHECKPOINT_WRITE_MODEL_H_
#define EVENSHARD_COMMON_CHECKPOINT_WRITE_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/placement/model/model.h"

namespace evenshard {

// Writes all tensors of a float32 model, which lie in a worker's buffer as Model says, to a
// safetensors file. A file at `path` is replaced when the new one is complete. Errors: those of
// AtomicFile.
absl::Status WriteModel(const Model& model, absl::Span<const float> parameters,
                        const std::string& path);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_WRITE_MODEL_H_
