#ifndef EVENSHARD_COMMON_BASE_ATOMIC_FILE_H_
#define EVENSHARD_COMMON_BASE_ATOMIC_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/direct_writer.h"

namespace evenshard {

// A file that appears at its path whole or not at all. It is written without a name if the file
// system supports that, otherwise under a temporary name in the same folder, and Commit() gives it
// its name. A file that is destroyed before Commit() leaves nothing behind. If the path is a
// symbolic link, the link stays and the file appears where it points. Large pieces are written
// asynchronously where the file system can do that (DirectWriter). Not thread-safe.
class AtomicFile {
 public:
  // Reserves `bytes` of disk space, so that a full disk is an error of this call. The file has
  // `mode` from the beginning on, so that a secret is never readable by others; without one it has
  // 666 less the umask.
  // Errors, with the path: NOT_FOUND if the folder does not exist; PERMISSION_DENIED;
  // RESOURCE_EXHAUSTED; INVALID_ARGUMENT if something other than a regular file is at the path;
  // FAILED_PRECONDITION if the path is a symbolic link that leads in a circle.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      const std::string& path, int64_t bytes = 0, std::optional<mode_t> mode = std::nullopt);
  ~AtomicFile();

  // The error may be that of an earlier piece. REQUIRES: no byte of the file is written twice.
  absl::Status WriteAt(int64_t offset, absl::string_view bytes);

  // Flushes the file to disk and replaces what is at the path. REQUIRES: not called before; no call
  // of WriteAt follows.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string target, std::string temporary, int fd, bool named);
  absl::Status Error(absl::string_view doing) const;  // converts errno

  const std::string path_;    // as the caller gave it, for errors
  const std::string target_;  // `path_` with symbolic links followed
  const std::string temporary_;
  const int fd_;
  bool named_;  // whether `temporary_` exists
  bool had_large_piece_ = false;
  std::unique_ptr<DirectWriter> direct_;  // null before a large piece, and without direct writes
};

// Returns the error that AtomicFile would return for `path`, or OK if a file can be written there.
absl::Status CheckWritable(const std::string& path);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_ATOMIC_FILE_H_
