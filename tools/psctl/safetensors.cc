#include "tools/psctl/safetensors.h"

#include "nlohmann/json.hpp"

namespace ps {

SafetensorsLayout MakeSafetensorsLayout(const Model& model) {
  using Json = nlohmann::ordered_json;
  constexpr size_t kAlignment = 8;

  SafetensorsLayout layout;
  Json header;
  // Readers of PyTorch models insist on the format "pt".
  header["__metadata__"] = {{"format", "pt"}, {"model", model.name()}};
  int64_t offset = 0;
  for (const Tensor& tensor : model.tensors()) {
    const int64_t end = offset + tensor.size * static_cast<int64_t>(sizeof(float));
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    layout.tensor_offsets.push_back(offset);
    offset = end;
  }
  std::string json = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');

  for (size_t i = 0; i < sizeof(uint64_t); ++i) {
    layout.header.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  }
  layout.header += json;
  for (int64_t& tensor_offset : layout.tensor_offsets) tensor_offset += layout.header.size();
  layout.file_size = layout.header.size() + offset;
  return layout;
}

}  // namespace ps
