#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

// The kernel's own limit.
constexpr int kMaxLinks = 40;

// Smaller pieces are written at once, through the page cache.
constexpr size_t kMinDirectBytes = size_t{64} << 10;

// Returns the path that `path` leads to, which is `path` itself unless it is a symbolic link. No
// file needs to exist there.
absl::StatusOr<std::filesystem::path> FollowLinks(const std::filesystem::path& path) {
  const std::string cannot = absl::StrCat("cannot write ", path.string());
  std::filesystem::path target = path;
  std::error_code error;
  for (int links = 0; links <= kMaxLinks; ++links) {
    if (!std::filesystem::is_symlink(target, error)) return target;
    // The target of a relative link is relative to the link's folder. operator/ drops its left side
    // if the right one is absolute.
    target = target.parent_path() / std::filesystem::read_symlink(target, error);
    if (error) return absl::ErrnoToStatus(error.value(), cannot);
  }
  return absl::FailedPreconditionError(absl::StrCat(cannot, ": it leads through more than ",
                                                    kMaxLinks, " symbolic links, or in a circle"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path,
                                                               int64_t bytes,
                                                               std::optional<mode_t> mode) {
  ASSIGN_OR_RETURN(const std::filesystem::path target, FollowLinks(path));
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": it exists and is not a regular file"));
  }
  const std::filesystem::path folder = std::filesystem::absolute(target).parent_path();
  const std::string temporary =
      folder / absl::StrCat(".", target.filename().string(), ".", absl::Hex(NewIncarnation()));
  const mode_t at_first = mode.value_or(0666);
  int fd = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, at_first);
  // Kernels without O_TMPFILE return EISDIR.
  const bool named = fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR);
  if (named) fd = open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, at_first);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));

  std::unique_ptr<AtomicFile> file(new AtomicFile(path, target, temporary, fd, named));
  // open() has left out the bits of the umask.
  if (mode.has_value() && fchmod(fd, *mode) != 0) return file->Error("set the mode of");
  if (bytes > 0) {
    errno = posix_fallocate(fd, 0, bytes);
    if (errno != 0) return file->Error("reserve space for");
  }
  return file;
}

AtomicFile::AtomicFile(std::string path, std::string target, std::string temporary, int fd,
                       bool named)
    : path_(std::move(path)),
      target_(std::move(target)),
      temporary_(std::move(temporary)),
      fd_(fd),
      named_(named) {}

AtomicFile::~AtomicFile() {
  direct_.reset();
  close(fd_);
  if (named_) unlink(temporary_.c_str());
}

absl::Status AtomicFile::WriteAt(int64_t offset, absl::string_view bytes) {
  if (bytes.size() >= kMinDirectBytes) {
    if (!std::exchange(had_large_piece_, true)) {
      ASSIGN_OR_RETURN(direct_, DirectWriter::Create(fd_));
    }
    if (direct_ != nullptr) {
      errno = direct_->Write(offset, bytes);
      return errno == 0 ? absl::OkStatus() : Error("write");
    }
  }
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error("write");
    bytes.remove_prefix(written);
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (direct_ != nullptr) {
    errno = direct_->Finish();
    if (errno != 0) return Error("write");
  }
  if (fsync(fd_) != 0) return Error("write");
  if (!named_) {
    // linkat() does not replace an existing file. So the file gets a temporary name, and rename()
    // puts it in place.
    const std::string self = absl::StrCat("/proc/self/fd/", fd_);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return Error("name");
    }
    named_ = true;
  }
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return Error("replace");
  named_ = false;

  // Without this, a crash of the machine could lose the new name.
  const std::string folder = std::filesystem::path(temporary_).parent_path();
  const int folder_fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) return Error("sync the folder of");
  const int synced = fsync(folder_fd);
  close(folder_fd);
  return synced == 0 ? absl::OkStatus() : Error("sync the folder of");
}

absl::Status AtomicFile::Error(absl::string_view doing) const {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", doing, " ", path_));
}

absl::Status CheckWritable(const std::string& path) { return AtomicFile::Create(path).status(); }

}  // namespace evenshard
