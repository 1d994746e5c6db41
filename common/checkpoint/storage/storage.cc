#include "common/checkpoint/storage/storage.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {

absl::StatusOr<std::string> ReadWholeFile(Storage* storage, const std::string& path,
                                          int64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, storage->OpenFile(path));
  if (file->size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file->size(), " bytes, allowed: at most ", max_bytes));
  }
  std::string contents(file->size(), '\0');
  RETURN_IF_ERROR(file->ReadAt(0, absl::MakeSpan(contents.data(), contents.size())));
  return contents;
}

absl::Status WriteWholeFile(Storage* storage, const std::string& path, absl::string_view contents) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                   storage->CreateFile(path, static_cast<int64_t>(contents.size())));
  RETURN_IF_ERROR(file->WriteAt(0, contents));
  return file->Commit();
}

}  // namespace evenshard
