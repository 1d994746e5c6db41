#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/untrusted_json.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHeaderAlignment = 8;
// Enough for 100,000 tensors. The format allows 100 MB, for which a reader may need 2 GB.
constexpr uint64_t kMaxHeaderBytes = 16'000'000;
// The header, a tensor and its shape.
constexpr int kHeaderDepth = 3;
constexpr char kMetadata[] = "__metadata__";

std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(value); ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return bytes;
}

uint64_t FromLittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

// Returns the bytes of an element, or 0 if the type is not known.
int64_t ElementBytes(absl::string_view dtype) {
  static constexpr std::pair<absl::string_view, int64_t> kTypes[] = {
      {"F64", 8}, {"I64", 8}, {"U64", 8},     {"F32", 4},     {"I32", 4},
      {"U32", 4}, {"F16", 2}, {"BF16", 2},    {"I16", 2},     {"U16", 2},
      {"I8", 1},  {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

// Returns whether `value` is a list of integers from 0 on that fit `out`.
bool GetSizes(const nlohmann::json& value, std::vector<int64_t>* out) {
  if (!value.is_array()) return false;
  for (const nlohmann::json& element : value) {
    if (!element.is_number_unsigned()) return false;
    const uint64_t size = element.get<uint64_t>();
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    out->push_back(static_cast<int64_t>(size));
  }
  return true;
}

// Returns an empty text, or what is wrong with the description of a tensor. Offsets are relative to
// the end of the header.
std::string ParseTensor(const nlohmann::json& value, int64_t data_bytes, StoredTensor* tensor) {
  if (!value.is_object()) return "is not described by an object";
  const auto dtype = value.find("dtype");
  const auto shape = value.find("shape");
  const auto offsets = value.find("data_offsets");
  std::vector<int64_t> range;
  if (dtype == value.end() || !dtype->is_string() || shape == value.end() ||
      !GetSizes(*shape, &tensor->shape) || offsets == value.end() || !GetSizes(*offsets, &range) ||
      range.size() != 2) {
    return "lacks a dtype, a shape or two data_offsets";
  }
  tensor->dtype = dtype->get<std::string>();
  if (range[0] > range[1] || range[1] > data_bytes) {
    return absl::StrCat("has the data_offsets ", range[0], " and ", range[1], ", but there are ",
                        data_bytes, " bytes of data: the file may be cut short");
  }
  tensor->offset = range[0];
  tensor->bytes = range[1] - range[0];
  const int64_t element_bytes = ElementBytes(tensor->dtype);
  if (element_bytes == 0) return "";  // The reader of the tensor will refuse the type.
  int64_t elements = tensor->bytes / element_bytes;
  bool fits = tensor->bytes % element_bytes == 0;
  if (std::count(tensor->shape.begin(), tensor->shape.end(), 0) > 0) {
    fits = fits && elements == 0;
  } else {
    for (const int64_t size : tensor->shape) {
      fits = fits && elements % size == 0;
      elements /= size;
    }
    fits = fits && elements == 1;
  }
  return fits ? "" : absl::StrCat("has ", tensor->bytes, " bytes, which do not fit its shape");
}

}  // namespace

SafetensorsLayout LayOutSafetensors(
    absl::Span<const SafetensorsEntry> entries,
    absl::Span<const std::pair<std::string, std::string>> metadata) {
  SafetensorsLayout layout;
  Json header;
  header[kMetadata] = {{"format", "pt"}};
  for (const auto& [key, value] : metadata) header[kMetadata][key] = value;
  int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    int64_t end = offset + static_cast<int64_t>(sizeof(float));
    for (const int64_t size : entry.shape) end = offset + (end - offset) * size;
    header[entry.name] = {
        {"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {offset, end}}};
    layout.tensor_offsets.push_back(offset);
    offset = end;
  }
  std::string json = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  json.resize((json.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  layout.header = LittleEndian(json.size()) + json;
  for (int64_t& tensor_offset : layout.tensor_offsets) tensor_offset += layout.header.size();
  layout.file_size = layout.header.size() + offset;
  return layout;
}

SafetensorsLayout MakeSafetensorsLayout(const Model& model) {
  std::vector<SafetensorsEntry> entries;
  for (const Tensor& tensor : model.tensors()) entries.push_back({tensor.name, tensor.shape});
  return LayOutSafetensors(entries, {{"model", model.name()}});
}

absl::StatusOr<std::vector<StoredTensor>> ReadSafetensorsHeader(const ReadableFile& file,
                                                                const std::string& path) {
  const auto error = [&path](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a whole safetensors file: ", parts...));
  };
  char length_bytes[sizeof(uint64_t)];
  if (file.size() < static_cast<int64_t>(sizeof(length_bytes))) {
    return error("it has ", file.size(), " bytes");
  }
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(length_bytes)));
  const uint64_t length = FromLittleEndian(absl::string_view(length_bytes, sizeof(length_bytes)));
  const int64_t after_length = file.size() - static_cast<int64_t>(sizeof(length_bytes));
  if (length > kMaxHeaderBytes || static_cast<int64_t>(length) > after_length) {
    return error("its header would have ", length, " bytes, allowed: at most ", kMaxHeaderBytes,
                 " and the ", after_length, " that follow in the file");
  }
  std::string json(length, '\0');
  RETURN_IF_ERROR(file.ReadAt(sizeof(length_bytes), absl::MakeSpan(json.data(), json.size())));
  const nlohmann::json header = ParseUntrustedJson(json, kHeaderDepth);
  if (!header.is_object()) return error("its header is not a JSON object");

  std::vector<StoredTensor> tensors;
  const int64_t data_begin = sizeof(length_bytes) + length;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) continue;
    StoredTensor tensor;
    tensor.name = name;
    const std::string problem = ParseTensor(value, file.size() - data_begin, &tensor);
    if (!problem.empty()) return error("the tensor \"", Printable(name), "\" ", problem);
    tensor.offset += data_begin;
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  for (size_t i = 1; i < tensors.size(); ++i) {
    const StoredTensor& before = tensors[i - 1];
    if (tensors[i].offset >= before.offset + before.bytes) continue;
    return error("the tensors \"", Printable(before.name), "\" and \"", Printable(tensors[i].name),
                 "\" overlap");
  }
  return tensors;
}

}  // namespace evenshard
