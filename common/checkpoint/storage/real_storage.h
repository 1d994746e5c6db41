#ifndef EVENSHARD_COMMON_CHECKPOINT_STORAGE_REAL_STORAGE_H_
#define EVENSHARD_COMMON_CHECKPOINT_STORAGE_REAL_STORAGE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/storage/storage.h"

namespace evenshard {

// Returns the error of a system call. As absl::ErrnoToStatus, but UNAVAILABLE for what file systems
// of a network say while they are away: FAILED_PRECONDITION would be a verdict about a checkpoint.
absl::Status StorageError(int error, absl::string_view message);

// The machine's file system. Its locks are those of flock(2), which NFS passes on to its server.
// Thread-safe.
class RealStorage final : public Storage {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path,
                                                           int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) override;
  absl::Status MakeFolder(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveFolder(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                                     absl::string_view owner) override;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_STORAGE_REAL_STORAGE_H_
