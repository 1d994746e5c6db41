#ifndef PS_TOOLS_PSCTL_SAFETENSORS_H_
#define PS_TOOLS_PSCTL_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model.h"

namespace ps {

// Where things lie in a safetensors file (github.com/huggingface/safetensors): the
// length of a JSON header as 8 bytes, little-endian; the header, filled up with spaces
// to a multiple of 8; the tensors, float32, little-endian, in model order without gaps.
struct SafetensorsLayout {
  std::string header;                   // with its length in front
  std::vector<int64_t> tensor_offsets;  // of each tensor in the file
  int64_t file_size = 0;
};

SafetensorsLayout MakeSafetensorsLayout(const Model& model);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_SAFETENSORS_H_
