#include "common/checkpoint/storage/real_storage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

// What is read of a lock file's text. More would not be this program's.
constexpr size_t kMaxOwnerBytes = 500;

absl::Status Error(int error, absl::string_view doing, const std::string& path) {
  return StorageError(error, absl::StrCat("cannot ", doing, " ", path));
}

// Closes a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

class RealWritableFile final : public WritableFile {
 public:
  explicit RealWritableFile(std::unique_ptr<AtomicFile> file) : file_(std::move(file)) {}
  absl::Status WriteAt(int64_t offset, absl::string_view bytes) override {
    return file_->WriteAt(offset, bytes);
  }
  absl::Status Commit() override { return file_->Commit(); }

 private:
  const std::unique_ptr<AtomicFile> file_;
};

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  int64_t size() const override { return size_; }

  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
    while (!out.empty()) {
      const ssize_t got = pread(fd_.get(), out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error(errno, "read", path_);
      if (got == 0) {
        return absl::DataLossError(
            absl::StrCat(path_, " ends at byte ", offset, ", where more was expected"));
      }
      out.remove_prefix(got);
      offset += got;
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const Descriptor fd_;
  const int64_t size_;
};

class RealFileLock final : public FileLock {
 public:
  explicit RealFileLock(int fd) : fd_(fd) {}

 private:
  const Descriptor fd_;  // Closing it gives the lock up.
};

absl::Status SyncFolder(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) return Error(errno, "sync the folder", path);
  return absl::OkStatus();
}

}  // namespace

absl::Status StorageError(int error, absl::string_view message) {
  const absl::Status status = absl::ErrnoToStatus(error, message);
  switch (error) {
    case EBUSY:
    case ENOTCONN:   // of FUSE, whose process is gone
    case ESHUTDOWN:  // of Lustre, which has shut this host out for now
      return absl::UnavailableError(status.message());
    default:
      return status;
  }
}

absl::StatusOr<std::unique_ptr<WritableFile>> RealStorage::CreateFile(const std::string& path,
                                                                      int64_t bytes) {
  // AtomicFile would write what it leads to.
  if (std::error_code error; std::filesystem::is_symlink(path, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", path, ": it is a symbolic link, allowed: a file"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, bytes));
  return std::make_unique<RealWritableFile>(std::move(file));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> RealStorage::OpenFile(const std::string& path) {
  // O_NONBLOCK: opening a named pipe, which is then refused, must not wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error(errno, "read", path);
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": it is not a regular file"));
  }
  return std::make_unique<RealReadableFile>(path, fd, status.st_size);
}

absl::StatusOr<std::vector<std::string>> RealStorage::ListFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_symlink(ignored) && entry->is_directory(ignored)) continue;
    names.push_back(entry->path().filename());
  }
  if (error) return Error(error.value(), "list the folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RealStorage::MakeFolder(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::string above = std::filesystem::absolute(path).parent_path();
  if (above == path) return Error(ENOENT, "make the folder", path);
  RETURN_IF_ERROR(MakeFolder(above));
  if (mkdir(path.c_str(), 0777) != 0) {
    // Another process may have been faster.
    if (errno == EEXIST && std::filesystem::is_directory(path, error)) return absl::OkStatus();
    return Error(errno, "make the folder", path);
  }
  return SyncFolder(above);
}

absl::Status RealStorage::RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return Error(errno, "remove", path);
}

absl::Status RealStorage::RemoveFolder(const std::string& path) {
  if (rmdir(path.c_str()) == 0) {
    return SyncFolder(std::filesystem::path(path + "/..").lexically_normal());
  }
  if (errno == ENOENT) return absl::OkStatus();
  if (errno == ENOTEMPTY || errno == EEXIST) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot remove the folder ", path, ": it is not empty"));
  }
  return Error(errno, "remove the folder", path);
}

absl::StatusOr<std::unique_ptr<FileLock>> RealStorage::LockFile(const std::string& path,
                                                                absl::string_view owner) {
  // What a link leads to would be overwritten.
  const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return Error(errno, "lock", path);
  auto lock = std::make_unique<RealFileLock>(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Error(errno, "lock", path);
    std::string text(kMaxOwnerBytes, '\0');
    const ssize_t got = pread(fd, text.data(), text.size(), 0);
    text.resize(std::max<ssize_t>(got, 0));
    return absl::AbortedError(
        absl::StrCat(path, " is locked by ", text.empty() ? "another process" : Printable(text)));
  }
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size())) {
    return Error(errno, "write", path);
  }
  return lock;
}

}  // namespace evenshard
