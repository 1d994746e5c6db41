#ifndef PS_COMMON_BASE_ATOMIC_FILE_H_
#define PS_COMMON_BASE_ATOMIC_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ps {

// A file that appears at its path whole or not at all: written under no name, where the
// file system can, or a temporary one beside the path, and given its name by Commit().
// Destroyed before that, it leaves nothing. A symbolic link at the path stays: the file appears
// where it points. Not thread-safe.
class AtomicFile {
 public:
  // Takes `bytes` of disk space at once, so that a full disk shows here.
  // Errors, naming the path: NOT_FOUND (the folder), PERMISSION_DENIED,
  // RESOURCE_EXHAUSTED, INVALID_ARGUMENT where the path is no regular file, FAILED_PRECONDITION
  // where it is a link that leads in a circle.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            int64_t bytes = 0);
  ~AtomicFile();

  absl::Status WriteAt(int64_t offset, absl::string_view bytes);

  // Flushes to disk and replaces what is at the path. At most once, and last.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string target, std::string temporary, int fd, bool named);
  absl::Status Error(absl::string_view doing) const;  // from errno

  const std::string path_;    // as given, for errors
  const std::string target_;  // where links from there lead
  const std::string temporary_;
  const int fd_;
  bool named_;  // whether `temporary_` exists
};

// An error as from AtomicFile where a file could not be written at `path` now.
absl::Status CheckWritable(const std::string& path);

}  // namespace ps

#endif  // PS_COMMON_BASE_ATOMIC_FILE_H_
