#include "common/checkpoint/initial_parameters.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/placement/model/initializer.h"
#include "common/wire/half_width.h"
#include "common/wire/non_finite.h"

namespace evenshard {
namespace {

// How many tensors an error names.
constexpr size_t kNamed = 10;

// Returns the bytes of an element of a type that can be read, or 0.
int64_t ReadableBytes(const std::string& dtype) {
  if (dtype == "F32") return sizeof(float);
  if (dtype == "F16" || dtype == "BF16") return sizeof(uint16_t);
  return 0;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Appends "WHAT: a, b, c and 5 more" to `problem`, unless there are no names.
void AddNames(absl::string_view what, const std::vector<std::string>& names, std::string* problem) {
  if (names.empty()) return;
  const size_t named = std::min(names.size(), kNamed);
  absl::StrAppend(problem, problem->empty() ? "" : "; ", what, ": ",
                  absl::StrJoin(names.begin(), names.begin() + named, ", "));
  if (names.size() > named) absl::StrAppend(problem, " and ", names.size() - named, " more");
}

}  // namespace

absl::StatusOr<std::unique_ptr<const InitialParameters>> InitialParameters::Open(
    Storage* storage, const PlannedConfig& config) {
  std::unique_ptr<InitialParameters> result(new InitialParameters(config));
  if (!config.proto().model().has_initial_parameters()) return result;
  const std::string& path = config.proto().model().initial_parameters();
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = storage->OpenFile(path);
  if (!file.ok()) return result->Error(file.status().message());
  result->file_ = *std::move(file);
  absl::StatusOr<std::vector<StoredTensor>> tensors = ReadSafetensorsHeader(*result->file_, path);
  if (!tensors.ok()) return result->Error(tensors.status().message());
  RETURN_IF_ERROR(result->Match(*std::move(tensors)));
  return result;
}

absl::Status InitialParameters::Match(std::vector<StoredTensor> tensors) {
  std::map<std::string, StoredTensor> unused;
  for (StoredTensor& tensor : tensors) unused[tensor.name] = std::move(tensor);

  std::vector<std::string> missing, shapes, types, left_over;
  for (const Tensor& tensor : config_.model().tensors()) {
    auto found = unused.extract(tensor.name);
    stored_.emplace_back();
    if (found.empty()) {
      missing.push_back(tensor.name);
      continue;
    }
    const StoredTensor& stored = found.mapped();
    if (ReadableBytes(stored.dtype) == 0) {
      types.push_back(absl::StrCat(tensor.name, " (", Printable(stored.dtype), ")"));
    } else if (stored.shape != tensor.shape) {
      shapes.push_back(absl::StrCat(tensor.name, " (", ShapeText(stored.shape),
                                    ", allowed: ", ShapeText(tensor.shape), ")"));
    }
    stored_.back() = std::move(found.mapped());
  }
  for (const auto& [name, tensor] : unused) left_over.push_back(Printable(name));

  const ModelSpec& spec = config_.proto().model();
  if (spec.allow_missing_parameters()) missing.clear();
  if (spec.allow_unused_parameters()) left_over.clear();
  std::string problem;
  AddNames("has another shape than the model", shapes, &problem);
  AddNames("has a type other than F32, F16 and BF16", types, &problem);
  AddNames("lacks tensors of the model, allowed only with model.allow_missing_parameters", missing,
           &problem);
  AddNames("has tensors that the model has not, allowed only with model.allow_unused_parameters",
           left_over, &problem);
  if (problem.empty()) return absl::OkStatus();
  return Error(absl::StrCat(spec.initial_parameters(), " ", problem));
}

absl::Status InitialParameters::Fill(int tensor, int64_t begin, absl::Span<float> out) const {
  const Tensor& info = config_.model().tensors()[tensor];
  if (file_ == nullptr || !stored_[tensor].has_value()) {
    InitializeParameters(config_.proto().training().seed(), info, begin, out);
    return absl::OkStatus();
  }
  const StoredTensor& stored = *stored_[tensor];
  const int64_t size = static_cast<int64_t>(out.size());
  const int64_t element_bytes = ReadableBytes(stored.dtype);
  const int64_t offset = stored.offset + begin * element_bytes;
  if (stored.dtype == "F32") {
    RETURN_IF_ERROR(file_->ReadAt(
        offset, absl::MakeSpan(reinterpret_cast<char*>(out.data()), size * sizeof(float))));
  } else {
    std::vector<uint16_t> halves(size);
    RETURN_IF_ERROR(file_->ReadAt(
        offset, absl::MakeSpan(reinterpret_cast<char*>(halves.data()), size * element_bytes)));
    const HalfWidth& format = stored.dtype == "F16" ? Float16() : Bfloat16();
    format.decode(reinterpret_cast<const UnalignedHalf*>(halves.data()), size, out.data());
  }
  const int64_t bad = FindNonFinite(out.data(), size);
  if (bad < 0) return absl::OkStatus();
  return Error(absl::StrCat(config_.proto().model().initial_parameters(), " has ", out[bad],
                            " as element ", begin + bad, " of ", info.name,
                            ", allowed: finite numbers"));
}

absl::Status InitialParameters::Error(absl::string_view problem) const {
  return config_.FieldError("model.initial_parameters", problem);
}

}  // namespace evenshard
