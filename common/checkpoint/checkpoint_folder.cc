#include "common/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/folder_owner.h"
#include "common/checkpoint/shard_file.h"

namespace evenshard {
namespace {

absl::StatusOr<ShardRecord> ReadRecord(Storage* storage, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(storage, path, kMaxRecordBytes));
  return ParseRecord(text, path);
}

// Whether this program gives a file this name, or gives it while it writes the file.
bool IsCheckpointFile(absl::string_view name) {
  if (absl::StartsWith(name, ".")) name.remove_prefix(1);
  return absl::StartsWith(name, "shard-") || absl::StartsWith(name, kManifestName);
}

}  // namespace

std::string CheckpointFolder::FilePath(const CheckpointId& id, const std::string& name) const {
  return absl::StrCat(path_, "/", id.ToString(), "/", name);
}

absl::StatusOr<std::vector<CheckpointId>> CheckpointFolder::Ids() const {
  const absl::StatusOr<std::vector<std::string>> names = storage_->ListFolder(path_);
  if (absl::IsNotFound(names.status())) return std::vector<CheckpointId>();
  RETURN_IF_ERROR(names.status());
  std::vector<CheckpointId> ids;
  for (const std::string& name : *names) {
    if (const auto id = ParseCheckpointId(name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end(), std::greater<>());
  return ids;
}

absl::StatusOr<std::vector<CheckpointInfo>> CheckpointFolder::List(
    Verification verification) const {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, Ids());
  std::vector<CheckpointInfo> infos;
  for (const CheckpointId& id : ids) infos.push_back(Describe(id, verification));
  return infos;
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointFolder::Newest(
    Verification verification, bool passes_over_unreadable,
    std::vector<CheckpointInfo>* passed_over) const {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, Ids());
  absl::Status unreadable;
  for (const CheckpointId& id : ids) {
    CheckpointInfo info = Describe(id, verification);
    if (info.state == CheckpointInfo::State::kComplete) return info;
    if (info.is_unreadable) {
      unreadable.Update(absl::UnavailableError(
          absl::StrCat("the checkpoint ", id.ToString(), " cannot be read now: ", info.why)));
      if (!passes_over_unreadable) return unreadable;
    }
    if (passed_over != nullptr) passed_over->push_back(std::move(info));
  }
  RETURN_IF_ERROR(unreadable);
  return std::nullopt;
}

absl::StatusOr<uint64_t> CheckpointFolder::NextGeneration() const {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, Ids());
  return ids.empty() ? 1 : ids[0].generation + 1;
}

CheckpointInfo CheckpointFolder::Describe(const CheckpointId& id, Verification verification) const {
  CheckpointInfo info;
  info.id = id;
  int records = 0;
  if (const auto names = storage_->ListFolder(FilePath(id, "")); names.ok()) {
    for (const std::string& name : *names) {
      if (!absl::StartsWith(name, "shard-")) continue;
      if (absl::EndsWith(name, ".json")) ++records;
      if (!absl::EndsWith(name, ".safetensors")) continue;
      const auto file = storage_->OpenFile(FilePath(id, name));
      if (file.ok()) info.bytes += (*file)->size();
    }
  }
  const absl::StatusOr<Manifest> manifest = ReadManifest(id);
  absl::Status status = manifest.status();
  if (manifest.ok()) {
    info.facts = manifest->facts();
    info.written = manifest->written;
    for (const ShardRecord& record : manifest->records) {
      if (status.ok()) status = VerifyFile(record, verification);
    }
    // It may have been removed meanwhile, which begins with the manifest.
    if (!status.ok() && absl::IsNotFound(ReadManifest(id).status())) {
      status = absl::NotFoundError("");
    }
  }
  if (status.ok()) {
    info.state = CheckpointInfo::State::kComplete;
  } else if (absl::IsNotFound(status)) {
    info.why = absl::StrCat("has no manifest, and the records of ", records, " shards");
  } else {
    info.state = CheckpointInfo::State::kDamaged;
    info.why = std::string(status.message());
    info.is_unreadable = !absl::IsDataLoss(status) && !absl::IsFailedPrecondition(status);
  }
  return info;
}

absl::StatusOr<Manifest> CheckpointFolder::ReadManifest(const CheckpointId& id) const {
  const std::string path = FilePath(id, kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(storage_, path, kMaxRecordBytes));
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, path));
  if (manifest.facts().id != id) {
    return absl::DataLossError(
        absl::StrCat(path, " is that of another checkpoint, ", manifest.facts().id.ToString()));
  }
  return manifest;
}

absl::Status CheckpointFolder::Verify(const CheckpointId& id, Verification verification) const {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(id));
  for (const ShardRecord& record : manifest.records) {
    RETURN_IF_ERROR(VerifyFile(record, verification));
  }
  return absl::OkStatus();
}

absl::Status CheckpointFolder::VerifyFile(const ShardRecord& record,
                                          Verification verification) const {
  const std::string path =
      FilePath(record.facts.id, ShardFileName(record.shard, record.facts.shards));
  if (verification == Verification::kFull) return VerifyShardFile(storage_, path, record);
  return OpenShardFile(storage_, path, record).status();
}

absl::StatusOr<bool> CheckpointFolder::TryComplete(const CheckpointId& id, uint64_t run, int shards,
                                                   absl::Time now) const {
  RETURN_IF_ERROR(CheckOwner(storage_, path_, run));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, storage_->ListFolder(FilePath(id, "")));
  const std::set<std::string> present(names.begin(), names.end());
  if (present.contains(kManifestName)) return true;
  for (int shard = 0; shard < shards; ++shard) {
    if (!present.contains(ShardRecordName(shard, shards))) return false;
  }

  Manifest manifest{.written = now, .records = {}};
  for (int shard = 0; shard < shards; ++shard) {
    const std::string path = FilePath(id, ShardRecordName(shard, shards));
    ASSIGN_OR_RETURN(ShardRecord record, ReadRecord(storage_, path));
    if (record.shard != shard || record.facts.id != id || record.facts.run != run ||
        record.facts.shards != shards ||
        (shard > 0 && !SameFacts(record.facts, manifest.facts()))) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is not of the same run, config and cut as this checkpoint"));
    }
    RETURN_IF_ERROR(VerifyFile(record, Verification::kQuick));
    manifest.records.push_back(std::move(record));
  }
  RETURN_IF_ERROR(WriteWholeFile(storage_, FilePath(id, kManifestName), FormatManifest(manifest)));
  return true;
}

absl::Status CheckpointFolder::RemoveOld(int keep) const {
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> infos, List());
  absl::Status first;
  int complete = 0;
  for (const CheckpointInfo& info : infos) {
    const bool is_complete = info.state == CheckpointInfo::State::kComplete;
    const bool is_needless =
        complete >= keep || (complete > 0 && info.state == CheckpointInfo::State::kIncomplete);
    if (is_complete) ++complete;
    if (is_needless) first.Update(Remove(info.id));
  }
  return first;
}

absl::Status CheckpointFolder::RemoveIncomplete(const CheckpointId& id, uint64_t run) const {
  RETURN_IF_ERROR(CheckOwner(storage_, path_, run));
  if (!absl::IsNotFound(storage_->OpenFile(FilePath(id, kManifestName)).status())) {
    return absl::OkStatus();
  }
  return Remove(id);
}

absl::Status CheckpointFolder::RemoveLeftOut(const CheckpointId& last,
                                             const std::optional<CheckpointId>& writes,
                                             uint64_t run, int slot, int shards) const {
  RETURN_IF_ERROR(CheckOwner(storage_, path_, run));
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, Ids());
  absl::Status first;
  for (const CheckpointId& id : ids) {
    if (id > last || id == writes) continue;
    const absl::StatusOr<std::vector<std::string>> names = storage_->ListFolder(FilePath(id, ""));
    if (absl::IsNotFound(names.status())) continue;
    first.Update(names.status());
    if (!names.ok()) continue;
    const std::set<std::string> present(names->begin(), names->end());
    if (present.contains(kManifestName)) continue;
    if (id.generation == last.generation && present.contains(ShardRecordName(slot, shards))) {
      continue;
    }
    first.Update(Remove(id));
  }
  return first;
}

absl::Status CheckpointFolder::Remove(const CheckpointId& id) const {
  // A symbolic link with this name is not listed, and leads to files that are not this folder's.
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, Ids());
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) return absl::OkStatus();
  // Without its manifest first, so that half of a checkpoint never looks like a whole one.
  RETURN_IF_ERROR(storage_->RemoveFile(FilePath(id, kManifestName)));
  const absl::StatusOr<std::vector<std::string>> names = storage_->ListFolder(FilePath(id, ""));
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (!IsCheckpointFile(name)) continue;
    RETURN_IF_ERROR(storage_->RemoveFile(FilePath(id, name)));
  }
  return storage_->RemoveFolder(FilePath(id, ""));
}

}  // namespace evenshard
