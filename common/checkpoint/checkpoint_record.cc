#include "common/checkpoint/checkpoint_record.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/untrusted_json.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;  // that is written
using ReadJson = nlohmann::json;

// A manifest, its records, one of them, its slices, one of them, its checksums, those of an array.
constexpr int kMostDepth = 7;

// A text is {"checksum":"...","content":...} in exactly this form, so that the checksum is that of
// the bytes between.
constexpr absl::string_view kBeforeChecksum = "{\"checksum\":\"";
constexpr absl::string_view kBeforeContent = "\",\"content\":";
constexpr absl::string_view kAfterContent = "}\n";

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

std::string Seal(const Json& content) {
  const std::string text = content.dump(-1, ' ', false, Json::error_handler_t::replace);
  return absl::StrCat(kBeforeChecksum, Hex(Checksum(text)), kBeforeContent, text, kAfterContent);
}

absl::StatusOr<ReadJson> Unseal(absl::string_view text, const std::string& path) {
  const size_t front = kBeforeChecksum.size() + Hex(0).size();
  absl::string_view content = text;
  content.remove_prefix(std::min(content.size(), front));
  if (!absl::StartsWith(text, kBeforeChecksum) || !absl::ConsumePrefix(&content, kBeforeContent) ||
      !absl::ConsumeSuffix(&content, kAfterContent)) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: it does not begin and end as a checkpoint's record does"));
  }
  const absl::string_view checksum = text.substr(kBeforeChecksum.size(), Hex(0).size());
  if (checksum != Hex(Checksum(content))) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: its contents do not have its checksum"));
  }
  ReadJson json = ParseUntrustedJson(content, kMostDepth);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: its content is not a JSON object"));
  }
  return json;
}

Json ToJson(const CheckpointFacts& facts) {
  Json worker_set = Json::array();
  for (const WorkerSet& entry : facts.worker_set) {
    worker_set.push_back(
        {{"from_iteration", entry.from_iteration()},
         {"assignments", entry.assignments()},
         {"rank", std::vector<uint32_t>(entry.rank().begin(), entry.rank().end())}});
  }
  return {{"generation", facts.id.generation},
          {"iteration", facts.id.iteration},
          {"assignments", facts.id.assignments},
          {"exchange", facts.exchange},
          {"run", Hex(facts.run)},
          {"shards", facts.shards},
          {"workers", facts.workers},
          {"model", facts.model},
          {"settings", facts.settings},
          {"config_fingerprint", Hex(facts.config_fingerprint)},
          {"plan_fingerprint", Hex(facts.plan_fingerprint)},
          {"view", facts.view},
          {"worker_set", std::move(worker_set)}};
}

Json ToJson(const RecordedSlice& slice) {
  Json checksums = Json::array();
  for (const std::vector<uint64_t>& of_array : slice.checksums) {
    Json& list = checksums.emplace_back(Json::array());
    for (const uint64_t checksum : of_array) list.push_back(Hex(checksum));
  }
  return {{"tensor", slice.tensor},   {"shape", slice.shape},
          {"begin", slice.begin},     {"size", slice.size},
          {"offsets", slice.offsets}, {"chunk_sizes", slice.chunk_sizes},
          {"clocks", slice.clocks},   {"checksums", std::move(checksums)}};
}

// Without the facts, which a manifest has once.
Json ToJson(const ShardRecord& record) {
  Json clocks = Json::array();
  for (const ChunkClock& clock : record.clocks) {
    clocks.push_back({{"version", clock.version},
                      {"iteration", clock.iteration},
                      {"next_iteration", clock.next_iteration},
                      {"assignments", clock.assignments},
                      {"recent_assignments", clock.recent_assignments},
                      {"former_assignments", clock.former_assignments},
                      {"steps", clock.steps}});
    if (!clock.norms.empty()) clocks.back()["norms"] = clock.norms;
  }
  Json slices = Json::array();
  for (const RecordedSlice& slice : record.slices) slices.push_back(ToJson(slice));
  return {{"shard", record.shard},
          {"file_bytes", record.file_bytes},
          {"header_bytes", record.header_bytes},
          {"header_checksum", Hex(record.header_checksum)},
          {"clocks", std::move(clocks)},
          {"slices", std::move(slices)},
          {"registered", record.registered}};
}

// Reads the fields of JSON objects, and remembers the first one that is missing or has the wrong
// type.
class FieldReader {
 public:
  const std::string& bad_field() const { return bad_field_; }
  bool ok() const { return bad_field_.empty(); }
  void Refuse(absl::string_view field) {
    if (ok()) bad_field_ = std::string(field);
  }

  // Returns the elements of a list, or none.
  const ReadJson& List(const ReadJson& object, const char* field) {
    const ReadJson* const value = Find(object, field);
    if (value != nullptr && value->is_array()) return *value;
    Refuse(field);
    return kEmpty;
  }

  template <typename Integer>
  void Read(const ReadJson& object, const char* field, Integer* out) {
    const ReadJson* const value = Find(object, field);
    if (value == nullptr || !Get(*value, out)) Refuse(field);
  }

  template <typename T>
  void Read(const ReadJson& object, const char* field, std::vector<T>* out) {
    for (const ReadJson& element : List(object, field)) {
      if (!Get(element, &out->emplace_back())) return Refuse(field);
    }
  }

  // An object with texts.
  void Read(const ReadJson& object, const char* field, std::map<std::string, std::string>* out) {
    const ReadJson* const value = Find(object, field);
    if (value == nullptr || !value->is_object()) return Refuse(field);
    for (const auto& [name, text] : value->items()) {
      if (!Get(text, &(*out)[name])) return Refuse(field);
    }
  }

  void ReadHex(const ReadJson& object, const char* field, uint64_t* out) {
    const ReadJson* const value = Find(object, field);
    if (value == nullptr || !GetHex(*value, out)) Refuse(field);
  }

  static bool GetHex(const ReadJson& value, uint64_t* out) {
    return value.is_string() && absl::SimpleHexAtoi(value.get_ref<const std::string&>(), out);
  }

 private:
  static const ReadJson* Find(const ReadJson& object, const char* field) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(field);
    return found == object.end() ? nullptr : &*found;
  }

  static bool Get(const ReadJson& value, std::string* out) {
    if (!value.is_string()) return false;
    *out = value.get<std::string>();
    return true;
  }

  template <typename Integer>
  requires std::is_integral_v<Integer>
  static bool Get(const ReadJson& value, Integer* out) {
    if (!value.is_number_unsigned()) return false;
    const uint64_t number = value.get<uint64_t>();
    *out = static_cast<Integer>(number);
    return number <= static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  }

  static bool Get(const ReadJson& value, double* out) {
    if (!value.is_number()) return false;
    *out = value.get<double>();
    return std::isfinite(*out) && *out >= 0;
  }

  inline static const ReadJson kEmpty = ReadJson::array();
  std::string bad_field_;
};

void Read(const ReadJson& json, FieldReader* reader, CheckpointFacts* facts) {
  reader->Read(json, "generation", &facts->id.generation);
  reader->Read(json, "iteration", &facts->id.iteration);
  reader->Read(json, "assignments", &facts->id.assignments);
  reader->Read(json, "exchange", &facts->exchange);
  reader->ReadHex(json, "run", &facts->run);
  reader->Read(json, "shards", &facts->shards);
  reader->Read(json, "workers", &facts->workers);
  reader->Read(json, "model", &facts->model);
  reader->Read(json, "settings", &facts->settings);
  reader->ReadHex(json, "config_fingerprint", &facts->config_fingerprint);
  reader->ReadHex(json, "plan_fingerprint", &facts->plan_fingerprint);
  reader->Read(json, "view", &facts->view);
  for (const ReadJson& entry : reader->List(json, "worker_set")) {
    uint64_t from_iteration = 0;
    uint64_t assignments = 0;
    std::vector<uint32_t> ranks;
    reader->Read(entry, "from_iteration", &from_iteration);
    reader->Read(entry, "assignments", &assignments);
    reader->Read(entry, "rank", &ranks);
    WorkerSet& worker_set = facts->worker_set.emplace_back();
    worker_set.set_from_iteration(from_iteration);
    worker_set.set_assignments(assignments);
    worker_set.mutable_rank()->Add(ranks.begin(), ranks.end());
  }
}

// Whether everything that a reader relies on holds.
bool IsConsistent(const ShardRecord& record, const RecordedSlice& slice) {
  const size_t chunks = slice.chunk_sizes.size();
  if (chunks == 0 || slice.clocks.size() != chunks || slice.offsets.empty() ||
      slice.checksums.size() != slice.offsets.size()) {
    return false;
  }
  int64_t elements = 0;
  for (const int64_t size : slice.chunk_sizes) {
    if (size < 1 || size > slice.size - elements) return false;
    elements += size;
  }
  if (elements != slice.size) return false;
  for (const uint32_t clock : slice.clocks) {
    if (clock >= record.clocks.size()) return false;
  }
  for (const std::vector<uint64_t>& of_array : slice.checksums) {
    if (of_array.size() != chunks) return false;
  }
  for (const int64_t offset : slice.offsets) {
    const int64_t floats = (record.file_bytes - offset) / static_cast<int64_t>(sizeof(float));
    if (offset > record.file_bytes || slice.size > floats) return false;
  }
  return true;
}

void Read(const ReadJson& json, FieldReader* reader, ShardRecord* record) {
  reader->Read(json, "shard", &record->shard);
  reader->Read(json, "file_bytes", &record->file_bytes);
  reader->Read(json, "header_bytes", &record->header_bytes);
  reader->ReadHex(json, "header_checksum", &record->header_checksum);
  if (record->header_bytes > record->file_bytes) reader->Refuse("header_bytes");
  for (const ReadJson& element : reader->List(json, "clocks")) {
    ChunkClock& clock = record->clocks.emplace_back();
    reader->Read(element, "version", &clock.version);
    reader->Read(element, "iteration", &clock.iteration);
    reader->Read(element, "next_iteration", &clock.next_iteration);
    reader->Read(element, "assignments", &clock.assignments);
    reader->Read(element, "recent_assignments", &clock.recent_assignments);
    reader->Read(element, "former_assignments", &clock.former_assignments);
    reader->Read(element, "steps", &clock.steps);
    if (element.contains("norms")) reader->Read(element, "norms", &clock.norms);
  }
  reader->Read(json, "registered", &record->registered);
  for (const ReadJson& element : reader->List(json, "slices")) {
    RecordedSlice& slice = record->slices.emplace_back();
    reader->Read(element, "tensor", &slice.tensor);
    reader->Read(element, "shape", &slice.shape);
    reader->Read(element, "begin", &slice.begin);
    reader->Read(element, "size", &slice.size);
    reader->Read(element, "offsets", &slice.offsets);
    reader->Read(element, "chunk_sizes", &slice.chunk_sizes);
    reader->Read(element, "clocks", &slice.clocks);
    for (const ReadJson& of_array : reader->List(element, "checksums")) {
      std::vector<uint64_t>& checksums = slice.checksums.emplace_back();
      for (const ReadJson& checksum : of_array) {
        if (!FieldReader::GetHex(checksum, &checksums.emplace_back())) reader->Refuse("checksums");
      }
    }
    if (reader->ok() && !IsConsistent(*record, slice)) reader->Refuse("slices");
  }
}

absl::Status CheckFormat(const ReadJson& json, const std::string& path) {
  FieldReader reader;
  uint64_t format = 0;
  reader.Read(json, "format", &format);
  if (!reader.ok() || format == 0) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: it does not say its format"));
  }
  if (format != kCheckpointFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " was written by ", format > kCheckpointFormat ? "a newer" : "an older",
        " version of Evenshard: it has format ", format, ", allowed: ", kCheckpointFormat));
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const FieldReader& reader, const std::string& path) {
  if (reader.ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " is damaged: its field \"", reader.bad_field(),
                                          "\" is missing or makes no sense"));
}

}  // namespace

std::string FormatRecord(const ShardRecord& record) {
  return Seal({{"format", kCheckpointFormat},
               {"checkpoint", ToJson(record.facts)},
               {"record", ToJson(record)}});
}

std::string FormatManifest(const Manifest& manifest) {
  Json records = Json::array();
  for (const ShardRecord& record : manifest.records) records.push_back(ToJson(record));
  return Seal({{"format", kCheckpointFormat},
               {"checkpoint", ToJson(manifest.facts())},
               {"written_unix_seconds", absl::ToUnixSeconds(manifest.written)},
               {"records", std::move(records)}});
}

absl::StatusOr<ShardRecord> ParseRecord(absl::string_view text, const std::string& path) {
  ASSIGN_OR_RETURN(const ReadJson json, Unseal(text, path));
  RETURN_IF_ERROR(CheckFormat(json, path));
  FieldReader reader;
  ShardRecord record;
  Read(json.value("checkpoint", ReadJson()), &reader, &record.facts);
  Read(json.value("record", ReadJson()), &reader, &record);
  if (record.shard >= record.facts.shards) reader.Refuse("shard");
  RETURN_IF_ERROR(CheckFields(reader, path));
  return record;
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text, const std::string& path) {
  ASSIGN_OR_RETURN(const ReadJson json, Unseal(text, path));
  RETURN_IF_ERROR(CheckFormat(json, path));
  FieldReader reader;
  Manifest manifest;
  int64_t unix_seconds = 0;
  reader.Read(json, "written_unix_seconds", &unix_seconds);
  manifest.written = absl::FromUnixSeconds(unix_seconds);
  CheckpointFacts facts;
  Read(json.value("checkpoint", ReadJson()), &reader, &facts);
  for (const ReadJson& element : reader.List(json, "records")) {
    ShardRecord& record = manifest.records.emplace_back();
    record.facts = facts;
    Read(element, &reader, &record);
    if (record.shard != static_cast<int>(manifest.records.size()) - 1) reader.Refuse("shard");
  }
  if (facts.shards < 1 || facts.shards != static_cast<int>(manifest.records.size())) {
    reader.Refuse("records");
  }
  RETURN_IF_ERROR(CheckFields(reader, path));
  return manifest;
}

bool SameFacts(const CheckpointFacts& a, const CheckpointFacts& b) {
  const auto without_view = [](CheckpointFacts facts) {
    facts.view = 0;
    facts.worker_set.clear();
    return ToJson(facts);
  };
  return without_view(a) == without_view(b);
}

const CheckpointFacts& Manifest::facts() const {
  return std::max_element(
             records.begin(), records.end(),
             [](const ShardRecord& a, const ShardRecord& b) { return a.facts.view < b.facts.view; })
      ->facts;
}

}  // namespace evenshard
