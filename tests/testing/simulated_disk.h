#ifndef EVENSHARD_TESTS_TESTING_SIMULATED_DISK_H_
#define EVENSHARD_TESTS_TESTING_SIMULATED_DISK_H_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/storage/storage.h"

namespace evenshard {

// A disk in memory, for tests. It can be full or fail at any operation, lose power and damage
// files. A loss of power takes what was written and not committed, and all locks; it may bring back
// files that were removed, since no removal is synced. Thread-safe.
class SimulatedDisk final : public Storage {
 public:
  // What the disk is asked to do, with the path.
  enum class Operation { kCreate, kWrite, kCommit, kOpen, kRead, kList, kMake, kRemove, kLock };
  using Fault = std::function<absl::Status(Operation operation, const std::string& path)>;

  // From now on, calls `fault` before each operation, which fails with its error. Null: none fails.
  void SetFault(Fault fault) {
    const absl::MutexLock lock(&mutex_);
    fault_ = std::move(fault);
  }
  // The operation with this number, counted from 0 now on, and all after it fail, as when power is
  // lost.
  void FailFrom(int64_t operation) {
    const absl::MutexLock lock(&mutex_);
    operations_left_ = operation;
  }
  bool has_power() const {
    const absl::MutexLock lock(&mutex_);
    return operations_left_ != 0;
  }
  // Restores power: nothing fails any more. What was not committed is lost, and so are locks.
  void Restart() {
    const absl::MutexLock lock(&mutex_);
    fault_ = nullptr;
    operations_left_ = -1;
    ++power_;
    locks_.clear();
  }
  // Flips a bit of a file, or cuts it to `size` bytes. REQUIRES: the file has this byte.
  void FlipBit(const std::string& path, int64_t byte, int bit = 0) {
    const absl::MutexLock lock(&mutex_);
    std::string contents = *files_.at(path);
    contents.at(byte) = static_cast<char>(contents[byte] ^ (1 << bit));
    files_[path] = std::make_shared<const std::string>(std::move(contents));
  }
  void Truncate(const std::string& path, int64_t size) {
    const absl::MutexLock lock(&mutex_);
    files_[path] = std::make_shared<const std::string>(files_.at(path)->substr(0, size));
  }
  // Brings back a file that was removed. Its folder is there again, too.
  void Revive(const std::string& path) {
    const absl::MutexLock lock(&mutex_);
    files_[path] = removed_.at(path);
    folders_.insert(Parent(path));
  }
  // All files, by path.
  std::map<std::string, std::string> Files() const {
    const absl::MutexLock lock(&mutex_);
    std::map<std::string, std::string> files;
    for (const auto& [path, contents] : files_) files[path] = *contents;
    return files;
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path,
                                                           int64_t bytes) override {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status status = Begin(Operation::kCreate, path); !status.ok()) return status;
    if (!folders_.contains(Parent(path))) return NotFound("write", path);
    return std::make_unique<NewFile>(this, path, bytes, power_);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status status = Begin(Operation::kOpen, path); !status.ok()) return status;
    const auto found = files_.find(path);
    if (found == files_.end()) return NotFound("read", path);
    return std::make_unique<OldFile>(this, path, found->second);
  }

  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) override {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status status = Begin(Operation::kList, path); !status.ok()) return status;
    const std::string folder = Clean(path);
    if (!folders_.contains(folder)) return NotFound("list", path);
    std::set<std::string> names;
    for (const auto& [file, contents] : files_) {
      if (Parent(file) == folder) names.insert(file.substr(folder.size() + 1));
    }
    for (const std::string& inner : folders_) {
      if (inner != folder && Parent(inner) == folder) names.insert(inner.substr(folder.size() + 1));
    }
    return std::vector<std::string>(names.begin(), names.end());
  }

  absl::Status MakeFolder(const std::string& path) override {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status status = Begin(Operation::kMake, path); !status.ok()) return status;
    for (std::string folder = Clean(path); !folder.empty(); folder = Parent(folder)) {
      folders_.insert(folder);
    }
    return absl::OkStatus();
  }

  absl::Status RemoveFile(const std::string& path) override {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status status = Begin(Operation::kRemove, path); !status.ok()) return status;
    const auto found = files_.find(path);
    if (found == files_.end()) return absl::OkStatus();
    removed_[path] = found->second;
    files_.erase(found);
    return absl::OkStatus();
  }

  absl::Status RemoveFolder(const std::string& path) override {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status status = Begin(Operation::kRemove, path); !status.ok()) return status;
    const std::string folder = Clean(path);
    for (const auto& [file, contents] : files_) {
      if (absl::StartsWith(file, folder + "/")) {
        return absl::FailedPreconditionError(absl::StrCat(path, " is not empty"));
      }
    }
    folders_.erase(folder);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                                     absl::string_view owner) override {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status status = Begin(Operation::kLock, path); !status.ok()) return status;
    if (locks_.contains(path)) {
      return absl::AbortedError(absl::StrCat(path, " is locked by ", *files_[path]));
    }
    locks_.insert(path);
    files_[path] = std::make_shared<const std::string>(owner);
    return std::make_unique<Lock>(this, path, power_);
  }

 private:
  using Contents = std::shared_ptr<const std::string>;

  class NewFile final : public WritableFile {
   public:
    NewFile(SimulatedDisk* disk, std::string path, int64_t bytes, int power)
        : disk_(disk), path_(std::move(path)), contents_(bytes, '\0'), power_(power) {}

    absl::Status WriteAt(int64_t offset, absl::string_view bytes) override {
      const absl::MutexLock lock(&disk_->mutex_);
      if (absl::Status status = disk_->Begin(Operation::kWrite, path_); !status.ok()) return status;
      contents_.resize(std::max(contents_.size(), offset + bytes.size()));
      contents_.replace(offset, bytes.size(), bytes.data(), bytes.size());
      return absl::OkStatus();
    }

    absl::Status Commit() override {
      const absl::MutexLock lock(&disk_->mutex_);
      if (absl::Status status = disk_->Begin(Operation::kCommit, path_); !status.ok()) {
        return status;
      }
      if (power_ != disk_->power_) return absl::InternalError("the writer did not live so long");
      if (!disk_->folders_.contains(Parent(path_))) return NotFound("write", path_);
      disk_->files_[path_] = std::make_shared<const std::string>(std::move(contents_));
      return absl::OkStatus();
    }

   private:
    SimulatedDisk* const disk_;
    const std::string path_;
    std::string contents_;
    const int power_;
  };

  class OldFile final : public ReadableFile {
   public:
    OldFile(SimulatedDisk* disk, std::string path, Contents contents)
        : disk_(disk), path_(std::move(path)), contents_(std::move(contents)) {}

    int64_t size() const override { return static_cast<int64_t>(contents_->size()); }

    absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
      const absl::MutexLock lock(&disk_->mutex_);
      if (absl::Status status = disk_->Begin(Operation::kRead, path_); !status.ok()) return status;
      if (offset + static_cast<int64_t>(out.size()) > size()) {
        return absl::DataLossError(absl::StrCat(path_, " ends early"));
      }
      std::copy_n(contents_->begin() + offset, out.size(), out.begin());
      return absl::OkStatus();
    }

   private:
    SimulatedDisk* const disk_;
    const std::string path_;
    const Contents contents_;
  };

  class Lock final : public FileLock {
   public:
    Lock(SimulatedDisk* disk, std::string path, int power)
        : disk_(disk), path_(std::move(path)), power_(power) {}
    ~Lock() override {
      const absl::MutexLock lock(&disk_->mutex_);
      if (power_ == disk_->power_) disk_->locks_.erase(path_);
    }

   private:
    SimulatedDisk* const disk_;
    const std::string path_;
    const int power_;
  };

  static std::string Clean(std::string path) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    return path;
  }
  static std::string Parent(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
  }
  static absl::Status NotFound(absl::string_view doing, const std::string& path) {
    return absl::NotFoundError(absl::StrCat("cannot ", doing, " ", path, ": no such file"));
  }

  absl::Status Begin(Operation operation, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (operations_left_ == 0) return absl::UnavailableError(absl::StrCat(path, ": no power"));
    if (operations_left_ > 0) --operations_left_;
    return fault_ == nullptr ? absl::OkStatus() : fault_(operation, path);
  }

  mutable absl::Mutex mutex_;
  Fault fault_ ABSL_GUARDED_BY(mutex_);
  int64_t operations_left_ ABSL_GUARDED_BY(mutex_) = -1;  // below 0: no limit
  int power_ ABSL_GUARDED_BY(mutex_) = 0;                 // how often it was restored
  std::map<std::string, Contents> files_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Contents> removed_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> folders_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> locks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_SIMULATED_DISK_H_
