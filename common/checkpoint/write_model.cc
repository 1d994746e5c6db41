#include "common/checkpoint/write_model.h"

#include <memory>

#include "absl/strings/string_view.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors.h"

namespace evenshard {

absl::Status WriteModel(const Model& model, absl::Span<const float> parameters,
                        const std::string& path) {
  const SafetensorsLayout layout = MakeSafetensorsLayout(model);
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(path, layout.file_size));
  RETURN_IF_ERROR(file->WriteAt(0, layout.header));
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const Tensor& tensor = model.tensors()[i];
    const absl::string_view bytes(reinterpret_cast<const char*>(parameters.data() + tensor.offset),
                                  tensor.size * sizeof(float));
    RETURN_IF_ERROR(file->WriteAt(layout.tensor_offsets[i], bytes));
  }
  return file->Commit();
}

}  // namespace evenshard
