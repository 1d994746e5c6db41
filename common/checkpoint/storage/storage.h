#ifndef EVENSHARD_COMMON_CHECKPOINT_STORAGE_STORAGE_H_
#define EVENSHARD_COMMON_CHECKPOINT_STORAGE_STORAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace evenshard {

// A file that is being written. It appears at its path whole, with Commit(), or not at all. Not
// thread-safe.
class WritableFile {
 public:
  // Leaves nothing behind if Commit() was not called.
  virtual ~WritableFile() = default;
  // The error may be that of an earlier piece. REQUIRES: no byte of the file is written twice.
  virtual absl::Status WriteAt(int64_t offset, absl::string_view bytes) = 0;
  // Replaces what is at the path. Once this returns OK, a crash of the machine loses neither the
  // contents nor the name. REQUIRES: not called before; no call of WriteAt follows.
  virtual absl::Status Commit() = 0;
};

// A file that is open for reading. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // The bytes that the file had when it was opened.
  virtual int64_t size() const = 0;
  // Fills `out`. Errors: DATA_LOSS if the file ends before that.
  virtual absl::Status ReadAt(int64_t offset, absl::Span<char> out) const = 0;
};

// An exclusive lock. Its destructor gives it up, and so does the end of the process.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// The file system, as far as checkpoints need it. It is injected, so that tests can use a disk that
// fails, and one that loses in a crash what was not synced. Thread-safe. Every error names the
// path and says what the system says, such as "Read-only file system"; besides those below there
// are NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED if the disk is full, and others of the
// system.
class Storage {
 public:
  virtual ~Storage() = default;

  // Creates a file and reserves `bytes` of disk space, so that a full disk is an error of this
  // call. Errors: FAILED_PRECONDITION if there is a symbolic link, which may lead anywhere.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path,
                                                                   int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) = 0;
  // Returns the names in a folder, sorted, without symbolic links to folders: what is in those is
  // not in this one.
  virtual absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) = 0;
  // Makes a folder and those above it that are missing. A crash of the machine does not lose them.
  // OK if it exists already.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  // OK if there is no such file.
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  // A crash of the machine does not bring it back. OK if there is no such folder. Errors:
  // FAILED_PRECONDITION if it is not empty.
  virtual absl::Status RemoveFolder(const std::string& path) = 0;
  // Locks a file, which it creates if necessary, against all other locks, those of this process
  // too, and writes `owner` to it. Does not wait. Errors: ABORTED if it is locked, with what the
  // owner wrote.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                                             absl::string_view owner) = 0;
};

// Returns the whole contents of a file. Errors: INVALID_ARGUMENT if it has more than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(Storage* storage, const std::string& path,
                                          int64_t max_bytes);

// Creates a file with these contents and commits it.
absl::Status WriteWholeFile(Storage* storage, const std::string& path, absl::string_view contents);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_STORAGE_STORAGE_H_
