#ifndef EVENSHARD_COMMON_CHECKPOINT_SAFETENSORS_H_
#define EVENSHARD_COMMON_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/model/model.h"

namespace evenshard {

// The layout of a safetensors file (github.com/huggingface/safetensors). The file begins with the
// length of a JSON header, as 8 bytes, little-endian. The header follows, padded with spaces to a
// multiple of 8 bytes, and then the tensors, as little-endian float32, in the given order without
// gaps.
struct SafetensorsLayout {
  std::string header;                   // including its length in front
  std::vector<int64_t> tensor_offsets;  // of each tensor from the start of the file
  int64_t file_size = 0;
};

// A float32 tensor to be laid out.
struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
};

// `metadata` becomes the header's "__metadata__", after an entry that readers of PyTorch models
// insist on.
SafetensorsLayout LayOutSafetensors(absl::Span<const SafetensorsEntry> entries,
                                    absl::Span<const std::pair<std::string, std::string>> metadata);

// The layout of a whole model, in model order.
SafetensorsLayout MakeSafetensorsLayout(const Model& model);

// A tensor that a safetensors file says it has.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "F16", ...
  std::vector<int64_t> shape;
  int64_t offset = 0;  // from the start of the file
  int64_t bytes = 0;
};

// Reads the header of a safetensors file of any origin. The tensors are in the order of their
// offsets, do not overlap, and lie within the file. `path` is for errors.
// Errors: INVALID_ARGUMENT, which says what is wrong, if this is not a safetensors file or it is
// cut short; those of ReadableFile.
absl::StatusOr<std::vector<StoredTensor>> ReadSafetensorsHeader(const ReadableFile& file,
                                                                const std::string& path);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_SAFETENSORS_H_
