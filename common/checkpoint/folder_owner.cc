#include "common/checkpoint/folder_owner.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

constexpr char kAllowed[] =
    ", allowed: a folder of its own for each run (recovery.checkpoint.folder)";
constexpr int64_t kMaxRunBytes = 1000;
constexpr size_t kRunDigits = 16;

std::string RunPath(const std::string& folder) { return absl::StrCat(folder, "/RUN"); }

std::string RunText(uint64_t run, absl::string_view who) {
  return absl::StrCat(absl::StrFormat("%016x", run), " of ", Printable(who, kMaxRunBytes / 2));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderOwner>> FolderOwner::Take(
    Storage* storage, const std::string& folder, uint64_t run, absl::string_view who,
    absl::FunctionRef<absl::Status()> check) {
  RETURN_IF_ERROR(storage->MakeFolder(folder));
  const std::string text = RunText(run, who);
  absl::StatusOr<std::unique_ptr<FileLock>> lock =
      storage->LockFile(absl::StrCat(folder, "/LOCK"), absl::StrCat("run ", text));
  if (absl::IsAborted(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("another run uses the folder: ", lock.status().message(), kAllowed));
  }
  RETURN_IF_ERROR(lock.status());
  RETURN_IF_ERROR(check());
  RETURN_IF_ERROR(WriteWholeFile(storage, RunPath(folder), text));
  return std::unique_ptr<FolderOwner>(new FolderOwner(*std::move(lock)));
}

absl::StatusOr<uint64_t> OwnerOf(Storage* storage, const std::string& folder) {
  const std::string path = RunPath(folder);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(storage, path, kMaxRunBytes));
  uint64_t run = 0;
  if (text.size() < kRunDigits || !absl::SimpleHexAtoi(text.substr(0, kRunDigits), &run)) {
    return absl::DataLossError(absl::StrCat(path, " is damaged"));
  }
  return run;
}

absl::Status CheckOwner(Storage* storage, const std::string& folder, uint64_t run) {
  const absl::StatusOr<uint64_t> owner = OwnerOf(storage, folder);
  if (absl::IsNotFound(owner.status())) {
    return absl::UnavailableError(
        absl::StrCat("no run owns the folder ", folder, ": the file RUN is missing"));
  }
  RETURN_IF_ERROR(owner.status());
  if (*owner == run) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(storage, RunPath(folder), kMaxRunBytes));
  return absl::FailedPreconditionError(absl::StrCat(
      "the folder ", folder, " has been taken over by run ", Printable(text), kAllowed));
}

}  // namespace evenshard
