#ifndef PS_TOOLS_PSCTL_SAFETENSORS_H_
#define PS_TOOLS_PSCTL_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model.h"

namespace ps {

// The layout of a safetensors file (github.com/huggingface/safetensors). The file begins with the
// length of a JSON header, as 8 bytes, little-endian. The header follows, padded with spaces to a
// multiple of 8 bytes, and then the tensors, as little-endian float32, in model order without gaps.
struct SafetensorsLayout {
  std::string header;                   // including its length in front
  std::vector<int64_t> tensor_offsets;  // of each tensor from the start of the file
  int64_t file_size = 0;
};

SafetensorsLayout MakeSafetensorsLayout(const Model& model);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_SAFETENSORS_H_
